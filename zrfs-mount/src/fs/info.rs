//! The files of `.zrfs`, for programs: `info.json` says what is mounted (the keys are those of `zrfs info --json`, after
//! the mount's own), `stats.json` what was asked of the mount.

use super::Fs;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The length of `stats.json`, always the same: its numbers grow between a `stat` and a read.
pub(super) const STATS_BYTES: usize = 4096;

impl Fs {
    /// The file's bytes, made anew each time since the number of records may grow.
    pub(super) fn info(&self) -> Vec<u8> {
        for s in 0..self.states.len() {
            // A store that can't be refreshed still has the length it had.
            let _ = self.refresh(s as u16);
        }
        let mut info = Map::new();
        info.insert("name".into(), name(self.source.path()).into());
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        info.extend(zrfs::info::info(&self.source));
        let mut text = serde_json::to_vec_pretty(&Value::Object(info)).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// The bytes of `stats.json`, blanks up to [`STATS_BYTES`] included.
    pub(super) fn stats_file(&self) -> Vec<u8> {
        let mut report = Map::new();
        report.insert("requests".into(), self.timings.report().into());
        report.insert("cache".into(), json!({ "budget": self.cache.budget(), "used": self.cache.used() }));
        let mut text = serde_json::to_vec_pretty(&Value::Object(report)).unwrap_or_default();
        text.resize(STATS_BYTES - 1, b' ');
        text.push(b'\n');
        text
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
