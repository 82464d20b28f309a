//! The examples do what they say.

#[path = "../examples/fashion_mnist.rs"]
mod fashion_mnist;

#[test]
fn fashion_mnist_is_learned_and_resumed_bit_for_bit() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let outcome = fashion_mnist::run(dir.path()).unwrap();
    let (first, last) = outcome.losses;
    println!("loss {first} to {last}, {} right", outcome.accuracy);
    assert!(last < 0.75 && last < first / 2.0, "loss {first} to {last}");
    assert!(outcome.accuracy > 0.7, "{}", outcome.accuracy);
    assert!(outcome.same, "the resumed run has other weights");
}
