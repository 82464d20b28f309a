//! `zrfs-mount run`: a mount for as long as a command runs.

use crate::common::{Done, TempDir, mounter, run, shell, store, succeeds, wait_until};
use std::path::Path;

fn in_run(dir: &Path, args: &[&str]) -> Done {
    let place = dir.join("s");
    let mut all = vec!["run", place.to_str().unwrap()];
    all.extend(args);
    run(mounter(), &all)
}

/// Mounts of the directory's store, and directories made for runs.
fn leftovers(dir: &Path) -> Vec<String> {
    let store = dir.join("s").display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut left: Vec<String> = mounts.lines().filter(|l| l.starts_with(&store)).map(str::to_string).collect();
    let entries = std::fs::read_dir(dir.join("tmp")).unwrap();
    left.extend(entries.map(|e| e.unwrap().file_name().into_string().unwrap()));
    let processes = succeeds(&run("ps", &["-eo", "stat=,args="]));
    left.extend(
        processes
            .lines()
            .filter(|l| l.contains(&store) && l.contains("zrfs-mount") && !l.starts_with('Z'))
            .map(str::to_string),
    );
    left
}

fn place() -> TempDir {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "zstd", &(0..20).map(|i| format!("record {i}").into_bytes()).collect::<Vec<_>>());
    std::fs::create_dir(dir.path().join("tmp")).unwrap();
    std::fs::create_dir(dir.path().join("m")).unwrap();
    dir
}

/// The command sees the mount, its status is ours, and nothing is left.
#[test]
fn the_commands_status_is_ours_and_nothing_is_left() {
    let dir = place();
    let tmp = dir.path().join("tmp");
    let shell_in = |script: &str| {
        let script = format!("export TMPDIR={}; {script}", tmp.display());
        let done = shell(&script.replace("RUN", &format!("{} run {}/s", mounter(), dir.path().display())));
        assert_eq!(leftovers(dir.path()), [""; 0], "{script}");
        done
    };
    assert_eq!(
        succeeds(&shell_in("RUN -- sh -c 'cat $ZRFS_MOUNT/records/7; ls $ZRFS_MOUNT/records | wc -l'")),
        "record 720\n"
    );
    for (script, code) in [
        ("RUN -- sh -c 'exit 7'", 7),
        ("RUN -- sh -c 'kill -9 $$'", 137),
        ("RUN -- sh -c 'kill -TERM $$'", 143),
        ("RUN -- no-such-command", 127),
        ("RUN -- /etc/hostname", 126),
        ("RUN --at /no/such/place -- true", 125),
        ("RUNs -- true", 125),
        ("RUN true", 2),
        ("RUN --frobnicate -- true", 2),
    ] {
        let done = shell_in(script);
        assert_eq!(done.code, Some(code), "{script}: {done:?}");
        assert!(!(125..=127).contains(&code) || done.err.lines().count() == 1, "{script}: {}", done.err);
    }
    // Standard input and output are the command's, also closed ones; the mount's options are ours.
    assert_eq!(succeeds(&shell_in("echo hello | RUN -- cat")), "hello\n");
    assert_eq!(shell_in("RUN -- true <&- >&- 2>&-").code, Some(0));
    let at = dir.path().join("m").display().to_string();
    let given = format!("RUN --at {at} --root files --names auto -o uid=9 -- stat -c '%n %u' {at}/00000003.txt");
    assert_eq!(succeeds(&shell_in(&given)), format!("{at}/00000003.txt 9\n"));
    assert!(in_run(dir.path(), &["--help"]).out.contains("ZRFS_MOUNT"));
    let python = "import subprocess, sys\n\
         assert subprocess.check_output(sys.argv[1:] + ['--', 'sh', '-c', 'cat $ZRFS_MOUNT/records/1'], timeout=20) == b'record 1'\n";
    succeeds(&run("python3", &["-c", python, mounter(), "run", dir.path().join("s").to_str().unwrap()]));
}

/// Signals reach the command, which decides; the mount stays until it has ended.
#[test]
fn signals_are_the_commands() {
    let dir = place();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        let script = format!(
            "rm -f {0}/out; export TMPDIR={0}/tmp; env --default-signal=INT {1} run {0}/s -- bash -c 'trap \"cat \\$ZRFS_MOUNT/records/2; exit 3\" {signal}; echo ready; \
             while :; do sleep 0.01; done' >{0}/out & pid=$!; until grep -q ready {0}/out; do sleep 0.01; done; \
             kill -{signal} $pid; wait $pid; echo $?; cat {0}/out",
            dir.path().display(),
            mounter()
        );
        assert_eq!(succeeds(&shell(&script)), "3\nready\nrecord 2", "{signal}");
        let loops = script.find("bash -c '").unwrap()..script.find("done' >").unwrap() + 4;
        let script = script.replace(&script[loops], "sh -c 'echo ready; exec sleep 30");
        assert_eq!(succeeds(&shell(&script)), format!("{}\nready\n", 128 + number), "{signal} without a trap");
        assert_eq!(leftovers(dir.path()), [""; 0]);
    }
}

/// What was ignored stays ignored, as nohup wants it and a shell for its background jobs.
#[test]
fn ignored_signals_stay_ignored() {
    let dir = place();
    let script = format!(
        "export TMPDIR={0}/tmp; trap '' HUP INT; {1} run {0}/s -- sh -c 'echo ready; sleep 0.3; echo done' >{0}/out & pid=$!; \
         until grep -q ready {0}/out; do sleep 0.01; done; kill -HUP $pid; kill -INT $pid; wait $pid; echo $?; cat {0}/out",
        dir.path().display(),
        mounter()
    );
    assert_eq!(succeeds(&shell(&script)), "0\nready\ndone\n");
    let m = dir.path().join("m");
    let script = format!(
        "nohup {1} -f {0}/s {0}/m >/dev/null 2>&1 & pid=$!; until test -e {0}/m/records; do sleep 0.01; done; \
         kill -HUP $pid; sleep 0.1; cat {0}/m/records/3; kill $pid; wait $pid; echo \" $?\"",
        dir.path().display(),
        mounter()
    );
    let _guard = crate::common::Unmount(m);
    assert_eq!(succeeds(&shell(&script)), "record 3 0\n");
}

/// Whoever is killed, the other cleans up.
#[test]
fn killed_runs_and_killed_servers_leave_nothing() {
    let dir = place();
    let start = |then: &str| {
        format!(
            "export TMPDIR={0}/tmp; rm -f {0}/out {0}/go; {1} run {0}/s -- sh -c 'echo $ZRFS_MOUNT >{0}/out; \
             until test -e {0}/go; do sleep 0.01; done; ls $ZRFS_MOUNT' & pid=$!; \
             until test -s {0}/out; do sleep 0.01; done; {then}; sleep 0.3; touch {0}/go; wait $pid; echo $?",
            dir.path().display(),
            mounter()
        )
    };
    let killed = shell(&start("kill -9 $pid"));
    // The command may yet see the mount before it goes.
    assert!(killed.out.lines().any(|line| line == "137"), "{killed:?}");
    wait_until("the server cleans up", || leftovers(dir.path()).is_empty());
    let server = format!("kill -9 $(pgrep -f '[b]ackground-child.*{}/s')", dir.path().display());
    let killed = shell(&start(&server));
    assert_eq!(killed.out, "2\n", "ls fails, and says so: {killed:?}");
    assert_eq!(leftovers(dir.path()), [""; 0]);
    // A batch system tells everybody to end: the server stays for the command.
    let server = server.replace("-9", "-TERM");
    let told = shell(&start(&server));
    assert_eq!(told.out, "batches\nrecords\n0\n", "{told:?}");
    assert_eq!(leftovers(dir.path()), [""; 0]);
}

/// What the command leaves running can read what it has open, and holds nobody up.
#[test]
fn a_process_left_behind_reads_on() {
    let dir = place();
    let script = format!(
        "export TMPDIR={0}/tmp; {1} run {0}/s -- sh -c 'exec 3<$ZRFS_MOUNT/records/5; \
         (until test -e {0}/go; do sleep 0.01; done; cat <&3 >{0}/late) >/dev/null 2>&1 & exit 4'; \
         echo $?; touch {0}/go; until test -s {0}/late; do sleep 0.05; done; cat {0}/late",
        dir.path().display(),
        mounter()
    );
    let done = shell(&script);
    assert_eq!(succeeds(&done), "4\nrecord 5");
    assert!(done.err.contains("still open"), "{done:?}");
    wait_until("all ends", || leftovers(dir.path()).is_empty());
}
