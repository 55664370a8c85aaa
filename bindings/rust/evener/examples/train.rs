//! Trains a network on written digits, and runs what it has become.
//!
//! usage: train FOLDER TRAINED.onnx   (FOLDER: what tests/training/make_digits_run.py has written, a network
//! and pictures of 28 x 28 with their classes, as plain numbers)

use evener::{Model, Optimizer, Runtime, Session, Source, Tensor, Trainer, TrainerOptions};
use std::path::PathBuf;

const BATCH: usize = 32;
const PIXELS: usize = 28 * 28;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: train FOLDER TRAINED.onnx")?);
    let trained = arguments.next().ok_or("usage: train FOLDER TRAINED.onnx")?;
    let read = |name| std::fs::read(folder.join(name));
    let images: Vec<f32> =
        read("images.f32")?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let labels: Vec<i64> = read("labels.i64")?.chunks_exact(8).map(|b| i64::from(b[0])).collect();

    let runtime = Runtime::new()?;
    let options =
        TrainerOptions { optimizer: Optimizer::AdamW, learning_rate: Some(0.002), ..Default::default() };
    let trainer = Trainer::new(&runtime, &Source::File(folder.join("simple_cnn.onnx")), options)?;
    let batch = |first: usize| -> evener::Result<(Tensor, Tensor)> {
        let pixels = &images[first * PIXELS..(first + BATCH) * PIXELS];
        let x = Tensor::from_slice(&runtime, pixels, &[BATCH as i64, 1, 28, 28])?;
        Ok((x, Tensor::from_slice(&runtime, &labels[first..first + BATCH], &[BATCH as i64])?))
    };

    let held = labels.len() - BATCH; // the last pictures are not learned
    for epoch in 1..=4 {
        let mut loss = 0.0;
        for first in (0..held).step_by(BATCH) {
            let (x, classes) = batch(first)?;
            loss = trainer.step(&[("x", &x)], Some(&classes))?.loss;
        }
        let (x, classes) = batch(held)?;
        let found = trainer.evaluate(&[("x", &x)], Some(&classes))?;
        println!("epoch {}: loss {:.4}, {} of {} read rightly", epoch, loss, found.correct, found.count);
    }

    trainer.export(&trained)?; // an ONNX file, for any engine
    let session = Session::new(&runtime, &Model::load(&runtime, &trained)?)?;
    let scores = session.run(&[&batch(held)?.0])?[0].to_vec::<f32>()?;
    let best = (0..10).fold(0, |best, class| if scores[class] > scores[best] { class } else { best });
    println!("the first of them is a {}: it was read as {}", labels[held], best);
    Ok(())
}
