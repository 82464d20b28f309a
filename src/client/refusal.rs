//! What a mount's refusal of a batch means, in words: it answers with a number alone.

use rustix::io::Errno;
use std::io;
use zrfs_abi as abi;

/// A refusal that was put into words, and the mount's own answer.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Refusal {
    text: String,
    #[source]
    answer: io::Error,
}

/// The answer to the wish for a batch of so many records, with words for what the user can do something about.
pub(super) fn explain(answer: io::Error, records: u64, server: &abi::Server) -> io::Error {
    let batch = format!("a batch of {records} {}", if records == 1 { "record" } else { "records" });
    let text = match answer.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => format!(
            "{batch} does not fit in what the mount has for it: the views of one user have at most {} bytes together, and no \
             more than the machine has ({answer}); ask for fewer records, let go of other batches, or mount with a larger \
             --view-memory",
            server.view_memory
        ),
        Some(Errno::MFILE) => format!(
            "{batch} needs another view, and one user has at most {} at a time ({answer}); let go of other batches, or mount \
             with a larger --max-views",
            server.max_views
        ),
        Some(Errno::IO) => format!(
            "{batch} has one that is damaged or can't be read ({answer}); the mount's log names it (zrfs-mount --log FILE)"
        ),
        _ => return answer,
    };
    io::Error::new(answer.kind(), Refusal { text, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_wish_the_limit_and_the_option() {
        let nothing = abi::Server::decode(&[0; abi::Server::BYTES]).unwrap();
        let server = abi::Server { view_memory: 12345, max_views: 7, ..nothing };
        for (errno, words) in [
            (Errno::NOSPC, &["a batch of 256 records", "12345 bytes", "--view-memory"][..]),
            (Errno::MFILE, &["a batch of 256 records", "at most 7", "--max-views"]),
            (Errno::IO, &["damaged", "--log"]),
        ] {
            let told = explain(errno.into(), 256, &server);
            assert!(words.iter().all(|word| told.to_string().contains(word)), "{told}");
            let answer =
                told.get_ref().and_then(|refusal| refusal.source()).and_then(|e| e.downcast_ref::<io::Error>());
            assert_eq!(answer.and_then(io::Error::raw_os_error), Some(errno.raw_os_error()));
        }
        assert_eq!(explain(Errno::INVAL.into(), 1, &server).raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }
}
