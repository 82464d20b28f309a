//! Fashion-MNIST from file to model: packed into one store, sampled, loaded, and learned by softmax regression. Training
//! is stopped half-way and goes on from the saved state, to weights that are the same bit for bit.
//!
//! `cargo run --release --example fashion_mnist [DIR]` with Debian's package `dataset-fashion-mnist`; the store is made in
//! DIR, or in a directory that is removed afterwards.

use std::error::Error;
use std::path::Path;
use zrfs::loader::{Batch, Loader, LoaderBuilder, State, TransformError};
use zrfs::pack::{PackOptions, Progress, Watch, pack_streams};
use zrfs::{Source, sampler::Mode};

const DATA: &str = "/usr/share/datasets/fashion-mnist";
const PIXELS: usize = 28 * 28;
const CLASSES: usize = 10;
const STEPS: usize = 300;
const RATE: f32 = 0.1;

/// A batch as the model takes it: made on the loader's workers.
pub struct Examples {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

fn examples(batch: Batch) -> Result<Examples, TransformError> {
    let part = |name| batch.part(name).ok_or_else(|| format!("the store has no stream {name}"));
    let pixels = part("image")?.bytes().iter().map(|&byte| f32::from(byte) / 255.0).collect();
    Ok(Examples { pixels, labels: part("label")?.bytes().to_vec() })
}

/// Packs images and labels as two streams of one dataset.
fn pack(kind: &str, target: &Path) -> zrfs::Result<()> {
    let source = |what: &str| Path::new(DATA).join(format!("{kind}-{what}-ubyte.gz"));
    let streams = [("image".into(), source("images-idx3")), ("label".into(), source("labels-idx1"))];
    let watch = Watch { progress: &Progress::default(), notice: &|_| {} };
    pack_streams(&streams, target, &PackOptions::default(), watch).map(|_| ())
}

/// Softmax regression: a weight for each class and pixel, and one for the class.
#[derive(Clone, PartialEq)]
pub struct Model {
    weights: Vec<f32>,
}

impl Model {
    fn new() -> Self {
        Model { weights: vec![0.0; CLASSES * (PIXELS + 1)] }
    }

    /// The probability of each class.
    fn predict(&self, image: &[f32]) -> [f32; CLASSES] {
        let mut scores = [0.0; CLASSES];
        for (score, weights) in scores.iter_mut().zip(self.weights.chunks_exact(PIXELS + 1)) {
            let (weights, bias) = weights.split_at(PIXELS);
            *score = bias[0] + weights.iter().zip(image).map(|(w, x)| w * x).sum::<f32>();
        }
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let exp = scores.map(|score| (score - most).exp());
        let sum: f32 = exp.iter().sum();
        exp.map(|e| e / sum)
    }

    /// One step of gradient descent; returns the mean loss before it.
    fn learn(&mut self, batch: &Examples) -> f32 {
        let (mut gradient, mut loss) = (vec![0.0; self.weights.len()], 0.0);
        for (image, &label) in batch.pixels.chunks_exact(PIXELS).zip(&batch.labels) {
            let predicted = self.predict(image);
            loss -= predicted[usize::from(label)].max(1e-9).ln();
            for (class, gradient) in gradient.chunks_exact_mut(PIXELS + 1).enumerate() {
                let error = predicted[class] - f32::from(u8::from(class == usize::from(label)));
                gradient.iter_mut().zip(image).for_each(|(g, x)| *g += error * x);
                gradient[PIXELS] += error;
            }
        }
        let n = batch.labels.len() as f32;
        self.weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= RATE * g / n);
        loss / n
    }
}

fn loader(store: &Path) -> zrfs::Result<LoaderBuilder<Examples>> {
    Ok(Loader::builder().source(Source::open(store)?).mode(Mode::Cyclic).batch(100).seed(1).workers(2).map(examples))
}

/// Trains for `steps` steps; returns the loss of each.
fn train(model: &mut Model, loader: &Loader<Examples>, steps: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    loader.iter().take(steps).map(|batch| Ok(model.learn(&batch?))).collect()
}

/// The share of the test images that the model names.
fn accuracy(model: &Model, store: &Path) -> Result<f32, Box<dyn Error>> {
    let loader =
        Loader::builder().source(Source::open(store)?).mode(Mode::Sequential).batch(1000).map(examples).build()?;
    let (mut right, mut all) = (0, 0);
    for batch in loader.iter().take(2) {
        let batch = batch?;
        for (image, &label) in batch.pixels.chunks_exact(PIXELS).zip(&batch.labels) {
            let predicted = model.predict(image);
            let best = (0..CLASSES).max_by(|&a, &b| predicted[a].total_cmp(&predicted[b]));
            (right, all) = (right + usize::from(best == Some(usize::from(label))), all + 1);
        }
    }
    Ok(right as f32 / all as f32)
}

/// What came of it.
pub struct Outcome {
    /// The mean loss of the first and of the last twenty steps.
    pub losses: (f32, f32),
    /// Of 2,000 test images.
    pub accuracy: f32,
    /// Whether the run that was stopped half-way ended with the same weights.
    pub same: bool,
}

/// Packs into `dir`, trains twice, and compares.
pub fn run(dir: &Path) -> Result<Outcome, Box<dyn Error>> {
    let (store, test) = (dir.join("train.zr"), dir.join("test.zr"));
    pack("train", &store)?;
    pack("t10k", &test)?;

    // In one go.
    let mut whole = Model::new();
    let losses = train(&mut whole, &loader(&store)?.build()?, STEPS)?;

    // Half of it; then everything is thrown away but the weights and a line of text.
    let mut half = Model::new();
    let first = loader(&store)?.build()?;
    train(&mut half, &first, STEPS / 2)?;
    let saved = first.state()?.to_string();
    drop(first);

    // The other half, with another number of workers.
    let state: State = saved.parse()?;
    let second = loader(&store)?.workers(1).resume(state).build()?;
    train(&mut half, &second, STEPS - STEPS / 2)?;

    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let same = whole.weights.iter().map(|w| w.to_bits()).eq(half.weights.iter().map(|w| w.to_bits()));
    let losses = (mean(&losses[..20]), mean(&losses[STEPS - 20..]));
    Ok(Outcome { losses, accuracy: accuracy(&whole, &test)?, same })
}

#[allow(dead_code)] // The test calls `run`.
fn main() -> Result<(), Box<dyn Error>> {
    let (temporary, given) = (tempfile::tempdir()?, std::env::args().nth(1));
    let outcome = run(given.as_deref().map_or(temporary.path(), Path::new))?;
    let (first, last) = outcome.losses;
    println!("loss: {first:.3} at first, {last:.3} after {STEPS} steps");
    println!("right: {:.1}% of 2,000 test images", outcome.accuracy * 100.0);
    println!("resumed half-way: {}", if outcome.same { "the same weights, bit for bit" } else { "OTHER WEIGHTS" });
    if outcome.same { Ok(()) } else { Err("the resumed run differs".into()) }
}
