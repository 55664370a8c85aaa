//! A real recognizer reads the lines of a real page as Python's program does. EVENER_OCR is a folder that
//! tests/make_ocr_lines.py wrote.

mod common;

use common::*;
use evener::*;
use std::time::{Duration, Instant};

/// The text by the greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count
/// once.
fn decode(probabilities: &[f32], classes: usize, alphabet: &[&str]) -> String {
    let mut text = String::new();
    let mut last = 0;
    for step in probabilities.chunks(classes) {
        let mut best = 0;
        for (class, probability) in step.iter().enumerate() {
            if *probability > step[best] {
                best = class;
            }
        }
        if best != 0 && best != last {
            text += alphabet[best];
        }
        last = best;
    }
    text
}

/// The lines: what the network reads (1 x 3 x 48 x width), and their texts.
fn lines(runtime: &Runtime, folder: &std::path::Path) -> Vec<(Tensor, String)> {
    let texts = std::fs::read_to_string(folder.join("texts.txt")).expect("texts.txt");
    let read = |(index, text): (usize, &str)| {
        let bytes = std::fs::read(folder.join(format!("line{}.f32", index))).expect("a line");
        let data: Vec<f32> =
            bytes.chunks(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
        let width = data.len() as i64 / (3 * 48);
        (Tensor::from_vec(runtime, data, &[1, 3, 48, width]).expect("a tensor"), text.to_string())
    };
    texts.lines().enumerate().map(read).collect()
}

#[test]
fn the_recognizer_reads_what_python_reads() {
    let files = (needed("EVENER_OCR", "texts.txt"), needed("EVENER_MODELS", "ch_PP-OCRv4_rec_infer.onnx"));
    let (texts, model) = match files {
        (Some(texts), Some(model)) => (texts, model),
        _ => return,
    };
    let runtime = runtime();
    let model = Model::load(&runtime, model).unwrap();
    let characters = model.metadata("character").unwrap().expect("the model has its characters");
    let alphabet: Vec<&str> = std::iter::once("").chain(characters.split('\n')).chain(Some(" ")).collect();
    let session = Session::new(&runtime, &model).unwrap();
    let lines = lines(&runtime, texts.parent().expect("a folder"));
    assert!(lines.len() >= 2 && lines.iter().all(|(_, text)| text.len() > 3));
    let read = |outputs: Outputs| {
        let classes = *outputs[0].dims().unwrap().last().expect("a rank") as usize;
        assert_eq!(classes, alphabet.len());
        decode(&outputs[0].view::<f32>().unwrap(), classes, &alphabet)
    };
    for (line, text) in &lines {
        assert_eq!(&read(session.run(&[line]).unwrap()), text);
    }
    // And so do 16 requests at a time.
    let deadline = Some(Instant::now() + Duration::from_secs(600));
    let options = RunOptions { deadline, ..Default::default() };
    let submit = |number: usize| session.submit(&[&lines[number % lines.len()].0], &options).unwrap();
    let requests: Vec<Request> = (0..16).map(submit).collect();
    for (number, request) in requests.into_iter().enumerate() {
        assert_eq!(read(block_on(request).unwrap()), lines[number % lines.len()].1);
    }
}
