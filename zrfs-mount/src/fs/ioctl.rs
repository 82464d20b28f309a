//! The calls by ioctl: which there are, and what a program learns before it asks for batches.

use super::{Failure, Fs};
use crate::errno::Errno;
use crate::namespace::Node;
use crate::views::Caller;
use zrfs::Source;
use zrfs::format::{Codec, Kind};
use zrfs_abi as abi;
use zrfs_abi::Zero;

impl Fs {
    /// An ioctl on a file or directory; returns what goes back to the caller.
    ///
    /// # Errors
    /// `ENOTTY` for a call that there is not, and for an order that is announced where there are no records; `EINVAL` for
    /// what is not possible; otherwise as `docs/VIEWS.md` says.
    pub fn ioctl(&self, caller: Caller, ino: u64, command: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let node = self.node(ino)?;
        self.call(caller, node, command, data).map_err(|e| self.fail(ino, None, e))
    }

    /// Whether a call gathers, which may take long.
    pub fn gathers(command: u32) -> bool {
        matches!(command, abi::SEAL | abi::GATHER_SMALL | abi::GATHER_LARGE | abi::SAMPLE)
    }

    /// Whether what is asked about this file or directory may take long: batches are drawn and gathered.
    pub fn may_gather(ino: u64) -> bool {
        matches!(
            Node::from_ino(ino),
            Some(Node::Spec(_) | Node::At | Node::BatchDir(_) | Node::BatchIndices(_) | Node::BatchFile(..))
        )
    }

    fn call(&self, caller: Caller, node: Node, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
        match command {
            abi::ANNOUNCE => self.announce(node, data).map(|()| Vec::new()),
            abi::SERVER => Ok(self.server().encode().to_vec()),
            abi::STORE => Ok(self.store_facts(node)?.encode().to_vec()),
            abi::STREAM => {
                let data: &[u8; abi::Stream::BYTES] = data.try_into().map_err(|_| Errno::INVAL)?;
                let asked = abi::Stream::decode(data).ok_or(Errno::INVAL)?;
                if asked != (abi::Stream { number: asked.number, ..abi::Stream::default() }) {
                    return Err(Errno::INVAL.into());
                }
                Ok(self.stream_facts(asked.number)?.encode().to_vec())
            }
            _ => self.view_call(caller, node, command, data),
        }
    }

    fn server(&self) -> abi::Server {
        let limits = self.views.limits();
        let mut server = abi::Server {
            version: abi::VERSION,
            socket_len: 0,
            features: abi::FEATURE_VIEWS | abi::FEATURE_START,
            view_memory: limits.memory,
            max_views: limits.views,
            socket: [0; 96],
        };
        if let Some(name) = self.views.socket()
            && let Some(place) = server.socket.get_mut(..name.len())
        {
            place.copy_from_slice(name.as_bytes());
            server.socket_len = name.len() as u32;
            server.features |= abi::FEATURE_SOCKET;
        }
        if self.ahead.is_on() {
            server.features |= abi::FEATURE_ANNOUNCE;
        }
        server
    }

    fn store_facts(&self, node: Node) -> Result<abi::Store, Failure> {
        self.refresh(0)?;
        let (dataset, tree) = (matches!(self.source, Source::Dataset(_)), self.tree().is_ok());
        let flags = [(dataset, abi::STORE_DATASET), (tree, abi::STORE_TREE)];
        Ok(abi::Store {
            records: self.source.len(),
            generation: self.source.fingerprint(),
            streams: self.states.len() as u32,
            own: self.own_stream(node).map_or(abi::STREAM_ALL, u32::from),
            flags: flags.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag),
            zero: Zero,
        })
    }

    fn stream_facts(&self, number: u32) -> Result<abi::Stream, Failure> {
        let s = u16::try_from(number).map_err(|_| Errno::INVAL)?;
        let stream = self.stream(s).map_err(|_| Errno::INVAL)?;
        self.refresh(s)?;
        let mut facts = abi::Stream {
            number,
            codec: match stream.store().codec() {
                Codec::Raw => 0,
                Codec::Zstd => 1,
                Codec::ZstdDict => 2,
            },
            itemsize: 1,
            records: stream.len(),
            ..abi::Stream::default()
        };
        let fill = |place: &mut [u8], text: &str| {
            let n = place.len().min(text.len());
            place[..n].copy_from_slice(&text.as_bytes()[..n]);
            n as u32
        };
        if let Some(schema) = stream.schema() {
            facts.itemsize = schema.dtype.itemsize();
            facts.dtype_len = fill(&mut facts.dtype, schema.dtype.as_str());
            match &schema.kind {
                Kind::Ragged => facts.kind = abi::KIND_RAGGED,
                Kind::Dense { item_shape } => {
                    facts.kind = abi::KIND_DENSE;
                    facts.record_bytes = schema.record_bytes().unwrap_or(0);
                    facts.ndim = item_shape.len() as u32;
                    facts.shape.iter_mut().zip(item_shape).for_each(|(place, &extent)| *place = extent);
                }
            }
        }
        facts.name_len = fill(&mut facts.name, self.stream_name(s)?);
        Ok(facts)
    }

    /// The stream that a file belongs to; `None` where it belongs to all of a dataset.
    pub(super) fn own_stream(&self, node: Node) -> Option<u16> {
        match node {
            _ if matches!(self.source, Source::Store(_)) => Some(0),
            Node::Stream(s) | Node::Records(s) | Node::Npys(s) | Node::Pngs(s) | Node::Files(s) => Some(s),
            Node::Record(s, _) | Node::Npy(s, _) | Node::Png(s, _) => Some(s),
            _ => None,
        }
    }

    /// The name that a loader would give the stream.
    pub(super) fn stream_name(&self, s: u16) -> Result<&str, Errno> {
        self.stream_names.get(usize::from(s)).map(String::as_str).ok_or(Errno::NOENT)
    }
}
