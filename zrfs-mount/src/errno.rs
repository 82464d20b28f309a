//! From the engine's errors to the numbers that system calls return.

pub use rustix::io::Errno;
use zrfs::Error;

/// The `errno` that a caller of the mount gets for an engine error.
///
/// Whatever is wrong inside the store is `EIO` outside: the causes, a missing chunk file say, are about other files
/// than the one that was asked for. There is no wildcard arm, so that a new kind of error has to be given a number.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => Errno::NOMEM,
        Error::Io { .. }
        | Error::NotAStore { .. }
        | Error::Corrupt { .. }
        | Error::RecordLength { .. }
        | Error::Dictionary { .. }
        | Error::Latched { .. } => Errno::IO,
        Error::Record { source, .. } => errno(source),
        Error::OutOfRange { .. } => Errno::NOENT,
        Error::Full { .. } => Errno::NOSPC,
        Error::BufferTooSmall { .. } | Error::Invalid(_) => Errno::INVAL,
        Error::Exists { .. } => Errno::EXIST,
        Error::Locked { .. } => Errno::BUSY,
        Error::Interrupted => Errno::INTR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_eio_and_absence_enoent() {
        let damage = Error::corrupt("0.chunk", 5, "bad frame");
        assert_eq!(errno(&damage), Errno::IO);
        assert_eq!(errno(&damage.at_record(7)), Errno::IO);
        assert_eq!(errno(&Error::OutOfRange { index: 3, length: 3 }), Errno::NOENT);
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(errno(&Error::io("open", "0.chunk")(gone)), Errno::IO, "the record is there, its chunk is not");
    }
}
