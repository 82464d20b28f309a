//! `-o`: mount options as fstab, mount(8) and libfuse's programs write them.

/// What the `-o` options ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// All users may enter the mount.
    pub allow_other: bool,
    /// root may enter the mount too.
    pub allow_root: bool,
    /// Mount over a directory that has files.
    pub nonempty: bool,
    /// Take the mount away when its process is killed.
    pub auto_unmount: bool,
    /// Owner of every file instead of the mounter.
    pub uid: Option<u32>,
    /// Group of every file instead of the mounter's.
    pub gid: Option<u32>,
    /// Permission bits to take from every file.
    pub umask: u16,
    /// Programs on the mount can't be run.
    pub noexec: bool,
    /// The kernel is told not to keep access times (there are none).
    pub noatime: bool,
    /// The name in the list of mounts instead of the store's path.
    pub fsname: Option<String>,
    /// The kind in the list of mounts instead of `zrfs`.
    pub subtype: Option<String>,
    /// Options that were taken but do nothing, with the reason.
    pub notes: Vec<String>,
}

/// Options that say what mount(8) or a boot script does, not what the mount is.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "exec",
    "nosuid",
    "nodev",
    "atime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "nodiratime",
    "diratime",
    "lazytime",
    "nolazytime",
    "async",
    "default_permissions",
    "silent",
    "loud",
];

impl MountOptions {
    /// Reads the values of all `-o`, each a list separated by commas; `\,` is a comma in a value. Later options win.
    ///
    /// # Errors
    /// A sentence that names the option that is not known or not possible.
    pub fn parse<S: AsRef<str>>(lists: &[S]) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        let mut writable = false;
        for option in lists.iter().flat_map(|list| split(list.as_ref())) {
            match option.as_str() {
                "" => {}
                "rw" => writable = true,
                "ro" => writable = false,
                other => options.take(other)?,
            }
        }
        if writable {
            // What mount(8) passes where fstab has no `ro`; as with other read-only media it is no error.
            options.notes.push("a zrfs mount is read-only; -o ro says so without this note".into());
        }
        Ok(options)
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let number = |radix: u32, max: u32, what: &str| {
            let value = value.unwrap_or_default();
            let number = u32::from_str_radix(value, radix).ok().filter(|&n| n <= max && !value.starts_with('+'));
            number.ok_or_else(|| format!("-o {option}: {name}= takes {what}"))
        };
        match (name, value) {
            ("uid", _) => self.uid = Some(number(10, u32::MAX - 1, "a user's number")?),
            ("gid", _) => self.gid = Some(number(10, u32::MAX - 1, "a group's number")?),
            ("umask", _) => self.umask = number(8, 0o777, "an octal number up to 777")? as u16,
            ("fsname", Some(value)) => self.fsname = Some(value.into()),
            ("subtype", Some(value)) if !value.is_empty() && !value.contains(['.', '/']) => {
                self.subtype = Some(value.into());
            }
            ("allow_other", None) => self.allow_other = true,
            ("allow_root", None) => self.allow_root = true,
            ("nonempty", None) => self.nonempty = true,
            ("auto_unmount", None) => self.auto_unmount = true,
            ("noexec", None) => self.noexec = true,
            ("noatime", None) => self.noatime = true,
            // mount(8) passes them unasked; a zrfs mount is nosuid and nodev all the same.
            ("suid" | "dev", None) => {}
            ("comment", Some(_)) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            (name, None) if IGNORED.contains(&name) => {}
            _ => return Err(format!("-o {option}: no such mount option; see zrfs-mount --help")),
        }
        Ok(())
    }
}

/// Cuts a list at its commas, but not at `\,`; a backslash before anything else stays.
fn split(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next_if(|&next| next == ',' || next == '\\') } else { None };
        match (c, escaped, parts.last_mut()) {
            (_, Some(literal), Some(last)) => last.push(literal),
            (',', ..) => parts.push(String::new()),
            (c, _, Some(last)) => last.push(c),
            _ => {}
        }
    }
    parts
}

/// A number of bytes as people write it: `4096`, `64K`, `256M`, `2GiB`.
///
/// # Errors
/// A sentence that says what is taken.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refused = || format!("{text:?} is no size; write a number of bytes, or 64K, 256M, 2G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    number.checked_mul(1 << shift).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fstab_and_libfuse_write() {
        let all = [
            "ro,allow_other,uid=1000,gid=100,umask=022",
            "noauto,user,_netdev,nofail,x-systemd.automount,noexec,nosuid",
        ];
        let options = MountOptions::parse(&all).unwrap();
        let want = MountOptions {
            allow_other: true,
            uid: Some(1000),
            gid: Some(100),
            umask: 0o22,
            noexec: true,
            ..MountOptions::default()
        };
        assert_eq!(options, want);
        assert_eq!(MountOptions::parse(&[r"fsname=a\,b\\c\d,ro"]).unwrap().fsname.as_deref(), Some(r"a,b\c\d"));
        assert_eq!(MountOptions::parse::<&str>(&[]).unwrap(), MountOptions::default());
        assert_eq!(MountOptions::parse(&["rw,ro", ""]).unwrap(), MountOptions::default(), "the last one wins");
        assert_eq!(MountOptions::parse(&["suid,dev"]).unwrap(), MountOptions::default());
        assert!(MountOptions::parse(&["ro,rw"]).unwrap().notes[0].contains("read-only"));
    }

    #[test]
    fn the_wrong_one_is_named() {
        for bad in [
            "frobnicate",
            "uid=root",
            "uid=-1",
            "uid=4294967295",
            "uid",
            "umask=8",
            "umask=1777",
            "ro=1",
            "max_read=4096",
        ] {
            let error = MountOptions::parse(&[format!("ro,{bad},nonempty")]).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn sizes() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("64k", 65536),
            ("256M", 256 << 20),
            ("2GiB", 2 << 30),
            ("1mb", 1 << 20),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "1X", "20000000T", "1 M", "iB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
