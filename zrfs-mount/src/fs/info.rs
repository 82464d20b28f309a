//! `.zrfs/info.json`: what is mounted, for programs. The keys are those of `zrfs info --json`, after the mount's own.

use super::Fs;
use serde_json::{Map, Value};
use std::path::Path;

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
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
