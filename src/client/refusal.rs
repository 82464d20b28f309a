//! What a mount's refusal of a batch means, in words: it answers with a number alone.

use crate::sampler::{Mode, Spec};
use rustix::io::Errno;
use std::io;
use std::path::Path;
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

/// Why a mount that has `have` records draws no batch of a step among the first `length`, 0 for all; `None` where it could.
pub(super) fn undrawable(path: &Path, have: u64, length: u64, spec: &Spec, step: u64) -> Option<String> {
    let path = path.display();
    if have == 0 {
        Some(format!("{path} has no records, so there is nothing to draw"))
    } else if have < length {
        Some(format!("length {length}: {path} has {have} records"))
    } else if spec.mode == Mode::Iid {
        // Its generator cannot jump, and a mount replays no more for one call.
        Some(format!(
            "step {step} of {spec} is too far for the mount of {path}, which replays at most 2^28 draws for a batch; \
             iid_counter, which draws others, has every step at once"
        ))
    } else {
        None
    }
}

/// Why the bytes of a view are not to be had: neither from the socket, whose error `socket` is, nor from its file.
pub(super) fn out_of_reach(socket: &io::Error, file: io::Error, view: u64, root: &Path) -> io::Error {
    let root = root.display();
    let text = format!(
        "the mount has the batch, but this program can't reach its memory: not by the mount's socket ({socket}), as from \
         another network namespace, and not as the file .zrfs/views/{view}, for {root} is only a part of the mount, or one \
         mounted with --root; let the program (its container) see the root of a mount without --root, or share the network \
         namespace of zrfs-mount"
    );
    io::Error::new(file.kind(), Refusal { text, answer: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_drawn_is_told_with_its_reason() {
        let told = |have, length, spec: &str| undrawable(Path::new("/m"), have, length, &spec.parse().unwrap(), 9);
        assert_eq!(told(0, 5, "cyclic,batch=2").unwrap(), "/m has no records, so there is nothing to draw");
        assert_eq!(told(4, 5, "iid,batch=2").unwrap(), "length 5: /m has 4 records");
        let far = told(4, 0, "iid,batch=2,seed=1").unwrap();
        assert!(far.starts_with("step 9 of iid,batch=2,seed=1 is too far"), "{far}");
        assert_eq!(told(4, 4, "cyclic,batch=2"), None);
    }

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
