//! zrfs keeps a dataset as a *store*: millions of records in a few large files, each found in O(1) and compressed on
//! its own. A store is gathered from by training code, mounted by `zrfs-mount` for tools that know only files, and
//! shares its format with PyPI's `loaderx` 1.5.2.
//!
//! `docs/FORMAT.md` describes the bytes, `docs/ARCHITECTURE.md` the modules, `docs/SEMANTICS.md` what a mount promises.
// `sys` may, `client::sys` (an ioctl, and mapping memory that a mount shares), and `ffi`.
#![deny(unsafe_code)]

pub mod buffer;
pub mod cache;
pub mod client;
pub mod codec;
pub mod compare;
pub mod dataset;
pub mod dict;
pub mod error;
pub mod export;
#[cfg(feature = "capi")]
#[allow(unsafe_code)]
mod ffi;
mod fork;
pub mod format;
mod in_order;
pub mod info;
pub mod loader;
pub mod measure;
pub mod names;
pub mod pack;
mod pool;
pub mod recode;
pub mod sampler;
pub mod select;
pub mod signals;
pub mod sniff;
mod staging;
pub mod storage;
pub mod store;
mod sys;
pub mod tree;
pub mod unpack;

pub use dataset::{Dataset, DatasetWriter, Source, Stream};
pub use error::{Error, Result};
pub use loader::Loader;
pub use pool::threads;
pub use select::Selection;
pub use store::{OpenOptions, SharedWriter, Store, Writer, WriterOptions};

/// The README's examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
