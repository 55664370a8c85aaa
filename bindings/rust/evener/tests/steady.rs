//! A million small calls: nothing of them stays.

mod common;

use common::*;
use evener::{RunOptions, Tensor};

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a system with /proc");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

fn calls(count: usize, call: &mut dyn FnMut(usize)) {
    (0..count).for_each(call);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_flat_over_a_million_calls() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let x = vector(&runtime, &[1.0, 2.0]);
    let wrong = Tensor::from_slice(&runtime, &[1i32], &[1]).expect("a tensor");
    let mut call = |number: usize| match number % 20 {
        0 => assert!(session.run(&[&wrong]).is_err()),
        1 => assert_eq!(session.run(&[&x]).expect("a run").len(), 1),
        2 => {
            assert!(session.submit(&[&x], &RunOptions::default()).and_then(|request| request.wait()).is_ok())
        }
        3 => assert_eq!(
            Tensor::from_vec(&runtime, vec![1u8; 64], &[64]).expect("a tensor").dims().expect("dims"),
            [64]
        ),
        4 => assert_eq!(x.part(1, &[1]).and_then(|part| part.to_vec::<f32>()).expect("a part"), [2.0]),
        _ => assert_eq!(x.view::<f32>().expect("a view")[1], 2.0),
    };
    calls(100_000, &mut call);
    let before = resident();
    calls(900_000, &mut call);
    let after = resident();
    // One byte that stayed of each call of one kind would be 45 KB; a tensor, a request or an error is 700
    // bytes and more.
    assert!(after < before + (8 << 20), "{} bytes before, {} after", before, after);
}
