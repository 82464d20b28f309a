//! What programs that handle signals have to know of those that they were started with.

/// Whether a signal was ignored by whoever started this process, as `nohup` does with SIGHUP and a script's shell with the
/// SIGINT of its background jobs: then it is to stay so. To be asked before a handler is installed.
///
/// Where the system does not tell, no signal is.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}
