//! As bench/calls/cost.c, in Rust: call_cost MODEL COUNT. Prints nanoseconds a call.

use evener::*;
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let count: u32 = arguments[2].parse().expect("a count");
    let runtime = Runtime::builder().threads(1).cache_dir("").build()?;
    let session = Session::new(&runtime, &Model::load(&runtime, &arguments[1])?)?;
    let x = Tensor::from_vec(&runtime, vec![0f32], &[1])?;
    let mut y = Tensor::from_vec(&runtime, vec![0f32], &[1])?;
    let options = RunOptions::default();
    for _ in 0..count / 5 {
        session.run_into(&[&x], &mut [&mut y], &options)?;
    }
    let begin = Instant::now();
    for _ in 0..count {
        session.run_into(&[&x], &mut [&mut y], &options)?;
    }
    println!("{:.1}", begin.elapsed().as_nanos() as f64 / f64::from(count));
    Ok(())
}
