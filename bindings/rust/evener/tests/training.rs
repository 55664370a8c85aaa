//! Training: written digits with the numbers of Python, and what is refused. EVENER_TRAINING is a folder that
//! tests/training/make_digits_run.py of the repository wrote.

mod common;

use common::*;
use evener::*;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BATCHES: usize = 8;
const BATCH: usize = 32;
const HELD: usize = 64;

fn numbers<T, const N: usize>(path: &Path, of: impl Fn([u8; N]) -> T) -> Vec<T> {
    let bytes = std::fs::read(path).expect("a file of numbers");
    bytes.chunks_exact(N).map(|chunk| of(chunk.try_into().expect("a chunk"))).collect()
}

struct Digits {
    images: Vec<f32>,
    labels: Vec<i64>,
    expected: Vec<f64>,
}

impl Digits {
    fn read(folder: &Path) -> Digits {
        let digits = Digits {
            images: numbers(&folder.join("images.f32"), f32::from_le_bytes),
            labels: numbers(&folder.join("labels.i64"), i64::from_le_bytes),
            expected: numbers(&folder.join("expected.f64"), f64::from_le_bytes),
        };
        assert_eq!(digits.labels.len(), BATCHES * BATCH + HELD);
        assert_eq!(digits.expected.len(), BATCHES + 3);
        digits
    }
    fn images(&self, runtime: &Runtime, first: usize, count: usize) -> Tensor {
        let data = &self.images[first * 784..(first + count) * 784];
        Tensor::from_slice(runtime, data, &[count as i64, 1, 28, 28]).unwrap()
    }
    fn classes(&self, runtime: &Runtime, first: usize, count: usize) -> Tensor {
        Tensor::from_slice(runtime, &self.labels[first..first + count], &[count as i64]).unwrap()
    }
    /// Takes steps, whose losses are to be those of Python, to the last bit.
    fn train(&self, runtime: &Runtime, trainer: &Trainer, steps: std::ops::Range<usize>) {
        for index in steps {
            let x = self.images(runtime, index * BATCH, BATCH);
            let step =
                trainer.step(&[("x", &x)], Some(&self.classes(runtime, index * BATCH, BATCH))).unwrap();
            assert_eq!((step.loss, step.step), (self.expected[index], index as u64 + 1));
            assert!(!step.skipped && step.gradient_norm > 0.0 && step.learning_rate > 0.0);
        }
    }
    /// Mean cross-entropy and right answers of logits of the held pictures.
    fn score(&self, logits: &[f32]) -> (f64, u64) {
        let (mut loss, mut correct) = (0.0, 0);
        for (row, label) in logits.chunks(10).zip(&self.labels[BATCHES * BATCH..]) {
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            loss += (sum.ln() - f64::from(row[*label as usize])) / HELD as f64;
            correct += u64::from(row.iter().all(|logit| *logit <= row[*label as usize]));
        }
        (loss, correct)
    }
}

fn options() -> TrainerOptions {
    TrainerOptions {
        optimizer: Optimizer::AdamW,
        learning_rate: Some(0.002),
        weight_decay: Some(0.01),
        groups: vec![ParameterGroup {
            names: vec!["*.b".into()],
            rate_factor: Some(2.0),
            weight_decay: Some(0.0),
        }],
        frozen: vec!["conv1.b".into()],
        schedule: Schedule::Cosine,
        schedule_steps: 16,
        warmup_steps: 2,
        clip_norm: 1.0,
        seed: 7,
        ..Default::default()
    }
}

#[test]
fn digits_are_learned_with_the_numbers_of_python() {
    let folder = match needed("EVENER_TRAINING", "expected.f64") {
        Some(file) => file.parent().expect("a folder").to_path_buf(),
        None => return,
    };
    let digits = Digits::read(&folder);
    let runtime = runtime();
    let model = Source::File(folder.join("simple_cnn.onnx"));
    let trainer = Trainer::new(&runtime, &model, options()).unwrap();
    digits.train(&runtime, &trainer, 0..BATCHES / 2);
    let checkpoint = Temporary::new("digits.safetensors", b"");
    trainer.save(&checkpoint.0).unwrap();
    digits.train(&runtime, &trainer, BATCHES / 2..BATCHES);
    assert!(digits.expected[BATCHES - 1] < digits.expected[0]);
    let held = digits.images(&runtime, BATCHES * BATCH, HELD);
    let labels = digits.classes(&runtime, BATCHES * BATCH, HELD);
    let found = trainer.evaluate(&[("x", &held)], Some(&labels)).unwrap();
    assert_eq!([found.loss, found.correct as f64, found.count as f64], digits.expected[BATCHES..]);
    assert!(found.accuracy().unwrap() > 0.5);

    // From its own checkpoint and from Python's it goes on with the same bits.
    let learned = trainer.parameters().unwrap();
    for file in [&checkpoint.0, &folder.join("state.safetensors")] {
        let other = Trainer::new(&runtime, &model, options()).unwrap();
        other.restore(file).unwrap();
        digits.train(&runtime, &other, BATCHES / 2..BATCHES);
        for (name, value) in other.parameters().unwrap() {
            assert_eq!(value.to_vec::<f32>().unwrap(), learned[&name].to_vec::<f32>().unwrap());
        }
    }

    let exported = Temporary::new("digits.onnx", b"");
    trainer.export(&exported.0).unwrap();
    for model in [Model::load(&runtime, &exported.0).unwrap(), trainer.finish().unwrap()] {
        let session = Session::new(&runtime, &model).unwrap();
        let (loss, correct) = digits.score(&session.run(&[&held]).unwrap()[0].view().unwrap());
        assert!((loss - found.loss).abs() < 1e-5 && correct == found.correct, "{} {}", loss, correct);
    }
}

/// Logits of three classes: y = x w + b, of any rows of four columns.
fn linear() -> Vec<u8> {
    let weights: Vec<f32> = (0..12).map(|i| (i % 5) as f32 / 4.0 - 0.5).collect();
    let constants = vec![floats("w", &[4, 3], &weights), floats("b", &[3], &[0.0; 3])];
    let nodes = vec![node("MatMul", &["x", "w"], &["p"]), node("Add", &["p", "b"], &["y"])];
    let ends = |name, columns| vec![value(name, tensor_type(FLOAT, &["m", columns]))];
    model(nodes, ends("x", "4"), ends("y", "3"), constants)
}

fn trainer(runtime: &Runtime, options: TrainerOptions) -> Result<Trainer> {
    Trainer::new(runtime, &Source::Bytes(&linear(), None), options)
}

fn inputs(runtime: &Runtime) -> Tensor {
    let data = (0..24).map(|i| (i * 5 % 7) as f32 / 3.0 - 1.0).collect();
    Tensor::from_vec::<f32>(runtime, data, &[6, 4]).unwrap()
}

fn labels(runtime: &Runtime, classes: &[i64]) -> Tensor {
    Tensor::from_slice(runtime, classes, &[classes.len() as i64]).unwrap()
}

fn losses(runtime: &Runtime, trainer: &Trainer, steps: usize) -> Vec<f64> {
    let (x, y) = (inputs(runtime), labels(runtime, &[0, 1, 2, 2, 1, 0]));
    (0..steps).map(|_| trainer.step(&[("x", &x)], Some(&y)).unwrap().loss).collect()
}

fn status<T>(result: Result<T>) -> Status {
    let error = result.err().expect("an error");
    assert!(!error.message.is_empty(), "{:?}", error);
    error.status
}

#[test]
fn misuse_of_a_trainer_is_an_error_and_changes_nothing() {
    let runtime = runtime();
    let (of, same) =
        (trainer(&runtime, Default::default()).unwrap(), trainer(&runtime, Default::default()).unwrap());
    let (x, y) = (inputs(&runtime), labels(&runtime, &[0, 1, 2, 2, 1, 0]));
    let wrong_dtype = Tensor::from_slice(&runtime, &[0f64; 24], &[6, 4]).unwrap();
    let wrong_shape = Tensor::from_slice(&runtime, &[0f32; 18], &[6, 3]).unwrap();
    let int32 = Tensor::from_slice(&runtime, &[0i32; 6], &[6]).unwrap();
    type Case<'a> = (Vec<(&'a str, &'a Tensor)>, Option<Tensor>);
    let cases: Vec<Case> = vec![
        (vec![("x", &x)], Some(labels(&runtime, &[0, 1, 2, 3, 1, 0]))),
        (vec![("x", &x)], Some(labels(&runtime, &[0, 1, 2, -1, 1, 0]))),
        (vec![("x", &x)], Some(labels(&runtime, &[0, 1, 2]))),
        (vec![("x", &x)], Some(int32)),
        (vec![("x", &x)], None),
        (vec![("z", &x)], Some(labels(&runtime, &[0; 6]))),
        (vec![("x", &x), ("x", &x)], Some(labels(&runtime, &[0; 6]))),
        (vec![("x", &wrong_dtype)], Some(labels(&runtime, &[0; 6]))),
        (vec![("x", &wrong_shape)], Some(labels(&runtime, &[0; 6]))),
    ];
    for (inputs, labels) in &cases {
        assert_eq!(status(of.step(inputs, labels.as_ref())), Status::InvalidArgument);
        assert_eq!(status(of.evaluate(inputs, labels.as_ref())), Status::InvalidArgument);
    }
    assert!(of.step(&[], Some(&y)).is_err());
    assert_eq!(status(of.set_learning_rate(f64::NAN)), Status::InvalidArgument);
    assert_eq!(status(of.save("/nowhere/at/all")), Status::Io);
    assert_eq!(status(of.restore("/nowhere/at/all")), Status::Io);
    assert_eq!(status(of.export("/nowhere/at/all")), Status::Io);
    assert_eq!(status(of.save("a\0b")), Status::InvalidArgument);
    assert_ne!(of.restore(&Temporary::new("no.safetensors", b"nothing").0), Ok(()));
    assert_eq!(losses(&runtime, &of, 3), losses(&runtime, &same, 3));
}

#[test]
fn each_choice_of_a_trainer_reaches_the_library() {
    let runtime = runtime();
    let refused = |options| status(trainer(&runtime, options));
    let new = TrainerOptions::default;
    assert_eq!(refused(TrainerOptions { nesterov: true, ..new() }), Status::InvalidArgument);
    assert_eq!(refused(TrainerOptions { output: Some("none".into()), ..new() }), Status::InvalidArgument);
    assert_eq!(refused(TrainerOptions { output: Some("a\0b".into()), ..new() }), Status::InvalidArgument);
    assert_eq!(refused(TrainerOptions { trainable: vec!["none".into()], ..new() }), Status::InvalidArgument);
    assert_eq!(refused(TrainerOptions { schedule: Schedule::Step, ..new() }), Status::InvalidArgument);
    assert_eq!(refused(TrainerOptions { prune_share: 2.0, ..new() }), Status::InvalidArgument);
    let long = Duration::from_secs(1 << 40);
    assert_eq!(refused(TrainerOptions { collective_timeout: long, ..new() }), Status::InvalidArgument);
    let _ = refused(TrainerOptions { device: Some("nowhere".into()), ..new() });
    let _ = refused(TrainerOptions { replicas: vec!["nowhere".into(), "cpu".into()], ..new() });
    let _ = refused(TrainerOptions { collective: Some("nothing".into()), ..new() });

    for loss in [Loss::SoftmaxCrossEntropy, Loss::BceWithLogits, Loss::Mse, Loss::L1] {
        let of = trainer(&runtime, TrainerOptions { loss, ..new() }).unwrap();
        let y = Tensor::from_slice(&runtime, &[0.5f32; 18], &[6, 3]).unwrap();
        let x = inputs(&runtime);
        let first = of.step(&[("x", &x)], Some(&y)).unwrap().loss;
        assert!(of.step(&[("x", &x)], Some(&y)).unwrap().loss < first, "{:?}", loss);
    }
    for (optimizer, name) in [
        (Optimizer::Sgd, "\"sgd\""),
        (Optimizer::Adam, "\"adam\""),
        (Optimizer::AdamW, "\"adamw\""),
        (Optimizer::Adagrad, "\"adagrad\""),
        (Optimizer::Rmsprop, "\"rmsprop\""),
    ] {
        let of = trainer(&runtime, TrainerOptions { optimizer, ..new() }).unwrap();
        let all = losses(&runtime, &of, 5);
        assert!(all[4] < all[0]);
        assert!(of.describe(Format::Json).unwrap().contains(name));
    }
    let of = trainer(
        &runtime,
        TrainerOptions {
            schedule: Schedule::Plateau,
            trainable: vec!["*".into()],
            frozen: vec!["b".into()],
            precision: Precision::Bf16,
            accumulate: 1,
            ..new()
        },
    )
    .unwrap();
    assert_eq!((of.input_count().unwrap(), of.find_input("x").unwrap()), (1, 0));
    of.set_learning_rate(0.5).unwrap();
    let (x, y) = (inputs(&runtime), labels(&runtime, &[0, 1, 2, 2, 1, 0]));
    let before = of.parameters().unwrap();
    assert_eq!(before.keys().collect::<Vec<_>>(), ["w"]);
    assert_eq!(of.gradients().unwrap()["w"].to_vec::<f32>().unwrap(), [0.0; 12]);
    assert_eq!(of.step(&[("x", &x)], Some(&y)).unwrap().learning_rate, 0.5);
    let (moved, gradient) = (of.parameters().unwrap(), of.gradients().unwrap());
    let moved = moved["w"].to_vec::<f32>().unwrap();
    for (index, gradient) in gradient["w"].to_vec::<f32>().unwrap().iter().enumerate() {
        let expected = before["w"].view::<f32>().unwrap()[index] - 0.5 * gradient;
        assert!((moved[index] - expected).abs() < 1e-6);
    }
    (0..12).for_each(|_| of.note_metric(1.0).unwrap());
    assert!((of.step(&[("x", &x)], Some(&y)).unwrap().learning_rate - 0.05).abs() < 1e-12);
}

#[test]
fn zero_is_a_value() {
    let runtime = runtime();
    let after = |options: TrainerOptions| {
        let of = trainer(&runtime, options).unwrap();
        losses(&runtime, &of, 3);
        of.note_metric(1.0).unwrap();
        of.note_metric(1.0).unwrap();
        let rate = of
            .step(&[("x", &inputs(&runtime))], Some(&labels(&runtime, &[0, 1, 2, 2, 1, 0])))
            .unwrap()
            .learning_rate;
        (of.parameters().unwrap()["w"].to_vec::<f32>().unwrap(), rate)
    };
    let adam = || TrainerOptions { optimizer: Optimizer::AdamW, ..Default::default() };
    let default = after(adam());
    let same = TrainerOptions {
        learning_rate: Some(1e-3),
        weight_decay: Some(0.01),
        beta1: Some(0.9),
        beta2: Some(0.999),
        ..adam()
    };
    assert_eq!(after(same), default);
    assert_ne!(after(TrainerOptions { beta1: Some(0.0), ..adam() }).0, default.0);
    assert_ne!(after(TrainerOptions { weight_decay: Some(0.0), ..adam() }).0, default.0);
    let still = after(TrainerOptions { learning_rate: Some(0.0), ..adam() });
    assert_eq!(
        (still.0, still.1),
        (trainer(&runtime, adam()).unwrap().parameters().unwrap()["w"].to_vec::<f32>().unwrap(), 0.0)
    );
    let group = |rate_factor, weight_decay| {
        vec![ParameterGroup { names: vec!["*".into()], rate_factor, weight_decay }]
    };
    assert_eq!(after(TrainerOptions { groups: group(None, None), ..adam() }), default);
    assert_ne!(after(TrainerOptions { groups: group(None, Some(0.0)), ..adam() }).0, default.0);
    let plateau =
        |plateau_patience| TrainerOptions { schedule: Schedule::Plateau, plateau_patience, ..adam() };
    assert_eq!(after(plateau(None)).1, 1e-3);
    assert!((after(plateau(Some(0))).1 - 1e-4).abs() < 1e-12);
    assert_eq!(status(trainer(&runtime, plateau(Some(u32::MAX)))), Status::InvalidArgument);
    assert_eq!(
        status(trainer(&runtime, TrainerOptions { epsilon: Some(f64::NAN), ..adam() })),
        Status::InvalidArgument
    );
}

#[test]
fn a_cancelled_trainer_ends_its_calls() {
    let runtime = runtime();
    let cancel = Cancel::new().unwrap();
    let of =
        trainer(&runtime, TrainerOptions { cancel: Some(cancel.clone()), ..Default::default() }).unwrap();
    losses(&runtime, &of, 1);
    cancel.cancel();
    let (x, y) = (inputs(&runtime), labels(&runtime, &[0, 1, 2, 2, 1, 0]));
    assert_eq!(status(of.step(&[("x", &x)], Some(&y))), Status::Cancelled);
    assert_eq!(status(of.evaluate(&[("x", &x)], Some(&y))), Status::Cancelled);
    assert_eq!(of.parameters().unwrap().len(), 2);
}

#[test]
fn a_trainer_moves_to_other_threads_and_outlives_its_runtime() {
    let runtime = runtime();
    let of = trainer(&runtime, Default::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| losses(&runtime, &of, 4));
        }
    });
    let (x, y) = (inputs(&runtime), labels(&runtime, &[0, 1, 2, 2, 1, 0]));
    drop(runtime);
    let last = std::thread::spawn(move || of.step(&[("x", &x)], Some(&y)).unwrap().step);
    assert_eq!(last.join().unwrap(), 13);
}

/// All-reduce among two threads.
#[derive(Default)]
struct Meeting {
    parts: Mutex<(u64, Vec<Vec<f64>>)>,
    all: Condvar,
}

impl Meeting {
    /// Sums of what both bring, in the order in which they come: two numbers have one sum.
    fn sum(&self, mine: Vec<f64>) -> Vec<f64> {
        let mut held = self.parts.lock().unwrap();
        let round = held.0;
        held.1.push(mine);
        if held.1.len() % 2 == 0 {
            held.0 += 1;
            self.all.notify_all();
        }
        let held = self.all.wait_while(held, |held| held.0 == round).unwrap();
        let at = 2 * round as usize;
        held.1[at].iter().zip(&held.1[at + 1]).map(|(one, other)| one + other).collect()
    }
}

#[test]
fn ranks_sum_by_the_host_and_are_as_one() {
    let runtime = runtime();
    let meeting = Arc::new(Meeting::default());
    let learn = |rank: u32| {
        let meeting = meeting.clone();
        let reduce: Reduce = Box::new(move |numbers: Reduced| {
            match numbers {
                Reduced::F32(numbers) => {
                    let sums = meeting.sum(numbers.iter().map(|number| f64::from(*number)).collect());
                    numbers.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum as f32);
                }
                Reduced::F64(numbers) => {
                    let sums = meeting.sum(numbers.to_vec());
                    numbers.copy_from_slice(&sums);
                }
            }
            Ok(())
        });
        let options = TrainerOptions {
            rank,
            rank_count: 2,
            check_ranks: true,
            reduce: Some(reduce),
            ..Default::default()
        };
        let of = trainer(&runtime, options).unwrap();
        let x = inputs(&runtime).part(u64::from(rank) * 12, &[3, 4]).unwrap();
        let y = labels(&runtime, &[0, 1, 2, 2, 1, 0]).part(u64::from(rank) * 3, &[3]).unwrap();
        let losses: Vec<f64> = (0..4).map(|_| of.step(&[("x", &x)], Some(&y)).unwrap().loss).collect();
        (losses, of.parameters().unwrap()["w"].to_vec::<f32>().unwrap())
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| learn(1));
        (learn(0), second.join().unwrap())
    });
    assert_eq!(first, second);
    let alone = losses(&runtime, &trainer(&runtime, Default::default()).unwrap(), 4);
    assert!(
        alone.iter().zip(&first.0).all(|(alone, of)| (alone - of).abs() < 1e-5),
        "{:?} {:?}",
        alone,
        first.0
    );
}

#[test]
fn what_the_hosts_sum_fails_with_is_the_status() {
    let runtime = runtime();
    let refused = |reduce: Reduce| {
        let options = TrainerOptions { rank_count: 2, reduce: Some(reduce), ..Default::default() };
        trainer(&runtime, options).err().expect("an error")
    };
    let lost = refused(Box::new(|_| Err(Error::new(Status::Timeout, "rank 1 is gone"))));
    assert_eq!(lost.status, Status::Timeout);
    assert!(lost.message.contains("rank 1 is gone"), "{}", lost);
    let panicked = refused(Box::new(|_| panic!("at the disco")));
    assert_eq!(panicked.status, Status::Internal);
    assert!(panicked.message.contains("at the disco"), "{}", panicked);
}
