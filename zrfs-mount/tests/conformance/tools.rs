//! Tools that know only files, on a mount and on the plain tree it was packed from.

use crate::common::{Mount, TempDir, bytes, run, shell, succeeds};
use crate::python;
use std::path::Path;
use zrfs::pack::{PackOptions, Progress, Watch};

/// Packs a directory.
pub fn pack(source: &Path, target: &Path) {
    let watch = Watch { progress: &Progress::default(), notice: &|n| panic!("{n:?}") };
    zrfs::pack::pack(source, target, &PackOptions { piece_bytes: 50_000, ..PackOptions::default() }, watch).unwrap();
}

/// A tree with what trees have: depth, names of all kinds, links, empty files and directories, modes and times; names as
/// wds#237 (22.0/1.1.png), fusepy#2 and rat#32 (bytes that are no UTF-8, line ends, both forms of accents).
fn plain(files: &Path) {
    let script = r#"
        set -e; mkdir -p "$1"; cd "$1"
        for d in a a/b a/b/c 22.0 "with blank" empty; do mkdir -p "$d"; done
        for i in $(seq 0 300); do printf 'line %d\nneedle-%d\n' $i $((i % 7)) >"a/b/f$i.txt"; done
        cp a/b/f1.txt 22.0/1.1.png; cp a/b/f2.txt 22.0/a.b.c; : >empty-file
        head -c 1234567 /dev/zero | tr '\0' x >large; seq 1 60000 >a/numbers
        printf x >"$(printf 'bad\377name')"; printf y >"$(printf 'line\nend')"; printf z >"with blank/ blank "
        printf n >"$(printf 'e\314\201')"; printf m >"$(printf '\303\251')"
        ln -s ../large a/link; ln -s nowhere broken; ln -s /etc/hostname absolute; ln -s self self
        ln large hard; chmod 600 a/numbers; chmod 755 a/b/f3.txt; chmod 700 a/b/c
        touch -d '2001-02-03 04:05:06.789' a/numbers; touch -h -d '1969-12-31' broken; touch -d @1 a/b/c
    "#;
    succeeds(&run("bash", &["-c", script, "plain", files.to_str().unwrap()]));
}

/// The same command in both trees has the same output and status.
#[track_caller]
fn same(at: &str, files: &str, script: &str) {
    let script = |dir: &str| format!("set -o pipefail; export LC_ALL=C; cd {dir} && {script}");
    let (want, got) = (shell(&script(files)), shell(&script(at)));
    assert!(want.code == got.code && want.out == got.out, "{}\nplain: {want:?}\nmount: {got:?}", script("."));
}

/// Features 5 and 6 of the wish list: find, tar, rsync, cp, grep, perl, Python see ordinary files. sqt#343: links are
/// verbatim.
#[test]
fn sqt343_wds237_fusepy2_rat32_tools_see_the_plain_tree() {
    let dir = TempDir::new().unwrap();
    let (files, path) = (dir.path().join("files"), dir.path().join("d.zr"));
    plain(&files);
    pack(&files, &path);
    let mount = Mount::new(&path, &["--root", "tree"]);
    let (at, files, tmp) = (mount.path(), files.to_str().unwrap(), dir.path().to_str().unwrap());
    for script in [
        "find . -printf '%P %y %m %l %T@ %u %g\\n' | sort",
        "find . ! -type d -printf '%P %n %s\\n' | sort",
        "find . -type f -newermt 2010-01-01 | sort",
        "find . -type f -size +100k -print0 | sort -z | xargs -0 sha256sum",
        "find . -type f -exec md5sum {} + | sort",
        "find . -empty | sort",
        "ls -RA --quoting-style=c",
        "ls -lR --time-style=full-iso a/b | grep ^- | tr -s ' '",
        "grep -rc needle-3 a | sort",
        "grep -rl 'line 29' . | sort",
        "grep -F xxxx large | wc -c",
        "tar --sort=name --format=posix --pax-option=delete=atime,delete=ctime -cf - --exclude=empty . | tar -tvf - | grep -v '/$'",
        "tar -cf - . | tar -xOf - ./a/numbers | sha256sum",
        "cat a/b/*.txt | sort | uniq -c | sort",
        "wc -l a/numbers; tail -n 3 a/numbers; head -c 100 a/numbers; sed -n 12345p a/numbers",
        "readlink a/link broken absolute self; cat a/link | wc -c",
        "diff a/b/f1.txt 22.0/1.1.png && cmp large hard && echo same",
        "perl -MFile::Find -e 'find({no_chdir => 1, wanted => sub { push @f, $_ }}, \".\"); print join(\"\\n\", sort @f)'",
        "git hash-object large a/numbers a/b/*.txt",
        "du -a --apparent-size --block-size=1 a/b | grep txt | sort",
        "sort -S1M a/numbers | tail -1; split -b 100k --filter='sha1sum' a/numbers",
        "test -r large && ! test -w large/x && test -d a && test -L broken && test ! -e broken && echo right",
    ] {
        same(&at, files, script);
    }
    let copy = format!("{tmp}/copy");
    let compare = format!("diff -r --no-dereference {files} {copy} && rsync -aHn --delete -i {files}/ {copy}/");
    for tool in [
        format!("cp -a {at} {copy}"),
        format!("mkdir {copy} && tar -cf - -C {at} . | tar -xpf - -C {copy}"),
        format!("rsync -aH {at}/ {copy}/"),
        format!("cp -a --sparse=always --reflink=auto {at} {copy}"),
    ] {
        succeeds(&shell(&tool));
        // An empty list of differences: contents, links, modes, owners and times are the same.
        assert_eq!(succeeds(&shell(&compare)), "", "{tool}");
        succeeds(&shell(&format!("rm -r {copy}")));
    }
    let walk = r#"
import mmap, os, shutil, sys, hashlib
def look(root):
    seen = {}
    for place, dirs, names in os.walk(os.fsencode(root)):
        dirs.sort()
        for name in names:
            path = os.path.join(place, name)
            st = os.lstat(path)
            if os.path.islink(path): content = os.readlink(path)
            else:
                with open(path, 'rb') as f:
                    content = hashlib.sha1(f.read()).digest()
                    if st.st_size:
                        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
                            assert hashlib.sha1(m).digest() == content
            seen[os.path.relpath(path, os.fsencode(root))] = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_nlink, content)
    return seen
plain, mount = look(sys.argv[1]), look(sys.argv[2])
assert plain == mount, set(plain.items()) ^ set(mount.items())
with os.scandir(sys.argv[2]) as entries:
    for e in entries: assert e.inode() == e.stat(follow_symlinks=False).st_ino
shutil.copytree(sys.argv[2], sys.argv[3], symlinks=True)
assert {k: v[4] for k, v in look(sys.argv[3]).items()} == {k: v[4] for k, v in plain.items()}
"#;
    succeeds(&run(python().to_str().unwrap(), &["-c", walk, files, &at, &copy]));
}

/// A repository that was packed is one on the mount: git reads it, and finds nothing changed.
#[test]
fn git_works_in_a_mounted_repository() {
    let dir = TempDir::new().unwrap();
    let (repo, path) = (dir.path().join("repo"), dir.path().join("d.zr"));
    std::fs::create_dir(&repo).unwrap();
    for i in 0..40u64 {
        std::fs::write(repo.join(format!("file{i}")), bytes(i, 3000)).unwrap();
    }
    let git = "git -c safe.directory='*' -c user.name=a -c user.email=a@b -c core.fsmonitor=false -c gc.auto=0";
    let make = format!(
        "set -e; cd {0} && {git} init -q . && {git} add . && {git} commit -qm one && echo more >file1 && {git} commit -qam two \
         && {git} gc -q && echo new >untracked && echo changed >>file2",
        repo.display()
    );
    succeeds(&shell(&make));
    pack(&repo, &path);
    let mount = Mount::new(&path, &["--root", "tree"]);
    for command in [
        "status --porcelain",
        "log --oneline --stat",
        "fsck --full",
        "diff",
        "ls-files -s",
        "grep -c abc",
        "archive HEAD | sha1sum",
    ] {
        let script = |at: &str| shell(&format!("cd {at} && GIT_OPTIONAL_LOCKS=0 {git} {command}"));
        let (want, got) = (script(repo.to_str().unwrap()), script(&mount.path()));
        assert!(want.code == Some(0) && want.out == got.out && got.code == Some(0), "{command}: {want:?} {got:?}");
    }
    let clone =
        format!("{git} clone -q file://{} {}/clone && ls {1}/clone | wc -l", mount.path(), dir.path().display());
    let clone = clone.replace("{1}", dir.path().to_str().unwrap());
    assert_eq!(succeeds(&shell(&clone)), "40\n");
}
