//! What several tests use: tiny models as bytes of ONNX, and what an executor is at the least.

#![allow(dead_code)]

pub mod gate;

use evener::{Model, Runtime, RuntimeBuilder, Session, Tensor};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

/// Protocol Buffers, as far as ONNX needs them.
#[derive(Default, Clone)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
    pub fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }
    pub fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
    pub fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }
    pub fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }
    pub fn all(self, field: u64, values: Vec<Message>) -> Self {
        values.into_iter().fold(self, |message, value| message.message(field, value))
    }
}

pub const FLOAT: i64 = 1;
pub const INT64: i64 = 7;

/// A tensor's type; a dim is a number or a name.
pub fn tensor_type(dtype: i64, dims: &[&str]) -> Message {
    let dim = |dim: &&str| match dim.parse::<i64>() {
        Ok(value) => Message::default().number(1, value),
        Err(_) => Message::default().text(2, dim),
    };
    let shape = Message::default().all(1, dims.iter().map(dim).collect());
    Message::default().message(1, Message::default().number(1, dtype).message(2, shape))
}

pub fn value(name: &str, kind: Message) -> Message {
    Message::default().text(1, name).message(2, kind)
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let inputs = inputs.iter().fold(Message::default(), |message, name| message.text(1, name));
    outputs
        .iter()
        .fold(inputs, |message, name| message.text(2, name))
        .text(3, &format!("the_{}", op))
        .text(4, op)
}

pub fn int_attribute(name: &str, value: i64) -> Message {
    Message::default().text(1, name).number(3, value).number(20, 2)
}

pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dims = dims.iter().fold(Message::default(), |message, dim| message.number(1, *dim));
    dims.number(2, FLOAT).text(8, name).bytes(9, &bytes)
}

pub fn model(
    nodes: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
    constants: Vec<Message>,
) -> Vec<u8> {
    let graph =
        Message::default().all(1, nodes).text(2, "tiny").all(5, constants).all(11, inputs).all(12, outputs);
    let opset = |domain, version| Message::default().text(1, domain).number(2, version);
    let model = Message::default().number(1, 8).message(7, graph);
    model.message(8, opset("", 17)).message(8, opset("mine", 1)).0
}

/// y = x + x, of any length.
pub fn double() -> Vec<u8> {
    let ends = |name| vec![value(name, tensor_type(FLOAT, &["n"]))];
    model(vec![node("Add", &["x", "x"], &["y"])], ends("x"), ends("y"), vec![])
}

/// y = x w, with x of any number of rows of 64: a model that can be quantized.
pub fn product() -> Vec<u8> {
    let weights: Vec<f32> = (0..64 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let ends = |name| vec![value(name, tensor_type(FLOAT, &["m", "64"]))];
    let constants = vec![floats("w", &[64, 64], &weights)];
    model(vec![node("MatMul", &["x", "w"], &["y"])], ends("x"), ends("y"), constants)
}

/// Model of y = 2 x whose w is in another file; `doubling` is the content of that file.
pub fn external_product(location: &str) -> Vec<u8> {
    let ends = |name| vec![value(name, tensor_type(FLOAT, &["m", "64"]))];
    let entry = Message::default().text(1, "location").text(2, location);
    let header = Message::default().number(1, 64).number(1, 64).number(2, FLOAT).text(8, "w");
    let constant = header.message(13, entry).number(14, 1);
    model(vec![node("MatMul", &["x", "w"], &["y"])], ends("x"), ends("y"), vec![constant])
}

pub fn doubling() -> Vec<u8> {
    (0..64 * 64).flat_map(|i| (if i % 65 == 0 { 2f32 } else { 0.0 }).to_le_bytes()).collect()
}

/// y = x k + b, where k is 2 and b is 1 unless they are given.
pub fn scale() -> Vec<u8> {
    let vector = |name| value(name, tensor_type(FLOAT, &["n"]));
    let scalar = |name| value(name, tensor_type(FLOAT, &[]));
    model(
        vec![node("Mul", &["x", "k"], &["m"]), node("Add", &["m", "b"], &["y"])],
        vec![vector("x"), scalar("k"), scalar("b")],
        vec![vector("y")],
        vec![floats("k", &[], &[2.0]), floats("b", &[], &[1.0])],
    )
}

/// total = sum + x and last = total: a state of two numbers.
pub fn running_sum() -> Vec<u8> {
    let kind = || tensor_type(FLOAT, &["2"]);
    let nodes = vec![node("Add", &["x", "sum"], &["total"]), node("Neg", &["total"], &["y"])];
    let inputs = vec![value("x", kind()), value("sum", kind())];
    model(nodes, inputs, vec![value("total", kind()), value("y", kind())], vec![])
}

/// y = Mine(x), an operator of the domain "mine".
pub fn custom(op: &str, attribute: Message) -> Vec<u8> {
    let ends = |name| vec![value(name, tensor_type(FLOAT, &["n"]))];
    let made = node(op, &["x"], &["y"]).message(5, attribute).text(7, "mine");
    model(vec![made], ends("x"), ends("y"), vec![])
}

static ASKED: Once = Once::new();

/// How most tests make their runtime: with two threads. Drivers open their devices when they are first asked
/// for them, and PoCL's crashes where two threads do so at a time: it is asked here, by one.
pub fn builder() -> RuntimeBuilder {
    ASKED.call_once(|| {
        let runtime = Runtime::builder().threads(1).cache_dir("").build().expect("a runtime");
        runtime.describe_devices(evener::Format::Text).expect("a list of devices");
    });
    Runtime::builder().threads(2).cache_dir("")
}

pub fn runtime() -> Runtime {
    builder().build().expect("a runtime")
}

pub fn session(runtime: &Runtime, model: &[u8]) -> Session {
    let model = Model::from_bytes(runtime, model).expect("a model");
    Session::new(runtime, &model).expect("a session")
}

pub fn vector(runtime: &Runtime, values: &[f32]) -> Tensor {
    Tensor::from_slice(runtime, values, &[values.len() as i64]).expect("a tensor")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: it polls on this thread, and sleeps between.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future: Pin<Box<F>> = Box::pin(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A file that a test needs: of the folder that an environment variable names. None: it is not there, and
/// nobody requires it.
pub fn needed(variable: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(|folder| PathBuf::from(folder).join(name));
    match path {
        Some(path) if path.exists() => Some(path),
        path if std::env::var_os("EVENER_REQUIRE").is_some() => {
            panic!("EVENER_REQUIRE is set, and there is no {}: {} names {:?}", name, variable, path)
        }
        _ => {
            eprintln!("skipped: {} names no folder with {}", variable, name);
            None
        }
    }
}

/// A file in the system's folder for such, which goes with this.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("evener-rust-{}-{}", std::process::id(), name));
        std::fs::write(&path, bytes).expect("a temporary file");
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
