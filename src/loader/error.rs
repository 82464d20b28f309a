//! What a step of a loader can fail with.

use crate::error::Error;
use std::any::Any;

/// The error of a transform: whatever it chooses.
pub type TransformError = Box<dyn std::error::Error + Send + Sync>;

/// A step that gave no batch.
#[derive(Debug, thiserror::Error)]
#[error("{}{failure}", place(*step, failure))]
pub struct LoadError {
    /// The step that failed (0 in a fork, where none is known). The loader goes on with the one after it; [`Loader::seek`](super::Loader::seek) goes back.
    pub step: u64,
    /// Why.
    #[source]
    pub failure: Failure,
}

/// Why a step gave no batch.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Its indices could not be drawn.
    #[error("{0}")]
    Draw(Error),
    /// Its records could not be read.
    #[error("stream {stream}: {error}")]
    Read {
        /// The stream's name.
        stream: String,
        /// What the store said.
        error: Error,
    },
    /// The transform returned this error.
    #[error("the transform failed: {0}")]
    Transform(TransformError),
    /// The transform panicked with this message.
    #[error("the transform panicked: {0}")]
    Panic(String),
    /// The loader was made by another process, of which this one is a fork.
    #[error("{}", forked(*.0))]
    Forked(u32),
}

/// Where it happened, in words.
fn place(step: u64, failure: &Failure) -> String {
    match failure {
        Failure::Forked(_) => String::new(),
        _ => format!("step {step}: "),
    }
}

/// What a fork of process `maker` is told.
pub(super) fn forked(maker: u32) -> String {
    format!("the loader was made by process {maker}, of which this is a fork; make one here, or after forking")
}

/// The text of a panic.
pub(super) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).into(),
            Err(_) => "with something that is no text".into(),
        },
    }
}
