//! Telling systemd that the mount answers (`Type=notify`): a datagram to the socket that `$NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, as `READY=1`, to the service manager that started us; to nobody if none did.
///
/// # Errors
/// Those of the socket.
pub fn notify(state: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) if !socket.is_empty() => send(&socket, state),
        _ => Ok(()),
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // An abstract name has no file.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("zrfs-notify-test-{}", std::process::id());
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (socket, address) in sockets {
            send(&address, "READY=1").unwrap();
            let mut got = [0; 16];
            let n = socket.recv(&mut got).unwrap();
            assert_eq!(&got[..n], b"READY=1");
        }
        assert!(send(OsStr::new("/nowhere/at/all"), "READY=1").is_err());
    }
}
