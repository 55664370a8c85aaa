//! Configurations, placement, the log, statistics, memory and caps, quantization.

mod common;

use common::*;
use evener::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const STRICT: &str =
    "version: 1\nplacement:\n  default: cpu\n  rules:\n    - {match: {op: MatMul}, device: cpu, numerics: strict}\n";

#[test]
fn yaml_places_nodes_and_explain_says_so() {
    let runtime = builder().config_text(STRICT).build().unwrap();
    let placed = session(&runtime, &product());
    let text = placed.explain(Format::Json).unwrap().replace(' ', "");
    assert!(text.contains("\"name\":\"the_MatMul\"") && text.contains("\"device\":\"cpu\""), "{}", text);
    assert!(text.contains("\"rule_line\":5") && text.contains("\"numerics\":\"strict\""), "{}", text);
    assert!(placed.explain(Format::Svg).unwrap().contains("<svg"));
    assert_eq!(placed.trace(Format::Text).err().unwrap().status, Status::WrongState);
    runtime.reconfigure_text("version: 1\n", None, None).unwrap();
    assert!(!placed.explain(Format::Json).unwrap().contains("strict"));
    assert_eq!(runtime.reconfigure_text("version: 9\n", None, None).err().unwrap().status, Status::Config);
    assert_eq!(runtime.reconfigure_path("/nowhere.yaml", None, None).err().unwrap().status, Status::Io);
}

#[test]
fn a_wrong_configuration_names_the_line() {
    let error = builder().config_text("").build().err().unwrap();
    assert_eq!(error.status, Status::InvalidArgument);
    let error = builder().config_text("version: 1\nplacemint: {}\n").build().err().unwrap();
    assert!(error.status == Status::Config && error.message.contains("placement"), "{}", error);
    assert_eq!(builder().config_path("/nowhere.yaml").build().err().unwrap().status, Status::Io);
}

#[test]
fn a_model_that_the_configuration_names() {
    let file = Temporary::new("named.onnx", &double());
    let name = file.0.file_name().expect("a name").to_string_lossy().into_owned();
    let yaml = format!("version: 1\nmodels:\n  twice: {{path: {}}}\n", name);
    let config = Temporary::new("named.yaml", yaml.as_bytes());
    let runtime = builder().config_path(&config.0).build().unwrap();
    let x = vector(&runtime, &[2.0]);
    let named = runtime.session("twice").unwrap();
    assert_eq!(named.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [4.0]);
    assert_eq!(runtime.session("thrice").err().unwrap().status, Status::InvalidArgument);
    let inspected = inspect(&runtime, &Source::File(file.0.clone()), &[("x", &[5])], Format::Json).unwrap();
    assert!(inspected.replace(' ', "").contains("\"loads\":true"), "{}", inspected);
}

#[test]
fn files_of_weights_behind_links() {
    let root = std::env::temp_dir().join(format!("evener-rust-{}-links", std::process::id()));
    let (store, models) = (root.join("store"), root.join("models"));
    for folder in [&store, &models] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(store.join("w.evener-bin"), doubling()).unwrap();
    std::os::unix::fs::symlink("../store/w.evener-bin", models.join("w.bin")).unwrap();
    let (file, bytes) = (models.join("m.onnx"), external_product("w.bin"));
    std::fs::write(&file, &bytes).unwrap();
    let runtime = runtime();
    assert_eq!(Model::load(&runtime, &file).err().unwrap().status, Status::InvalidModel);
    let roots = [models.as_path(), store.as_path()];
    let mut options = LoadOptions::default();
    options.allowed_roots = &roots[..1];
    assert_eq!(Model::load_with(&runtime, &file, &options).err().unwrap().status, Status::InvalidModel);
    options.allowed_roots = &roots;
    let x = Tensor::from_slice(&runtime, &[3f32; 64], &[1, 64]).unwrap();
    for is_mapped in [false, true] {
        options.map_files = is_mapped;
        let mut of_bytes = options;
        of_bytes.external_dir = Some(models.as_path());
        let loaded = [
            Model::load_with(&runtime, &file, &options).unwrap(),
            Model::from_bytes_with(&runtime, &bytes, &of_bytes).unwrap(),
        ];
        for model in &loaded {
            let session = Session::new(&runtime, model).unwrap();
            assert_eq!(session.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [6f32; 64]);
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert_eq!(maps.contains("/w.evener-bin"), is_mapped);
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn the_log_is_delivered_and_its_panics_are_not() {
    let records = Arc::new(Mutex::new(Vec::new()));
    let seen = records.clone();
    let log = move |record: &LogRecord| {
        seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(record.event.clone());
        panic!("a log panics");
    };
    let runtime = builder().log(LogLevel::Debug, log).build().unwrap();
    drop(session(&runtime, &double()));
    drop(runtime);
    let seen = records.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert!(seen.contains(&"runtime.created".to_string()), "{:?}", seen);
    assert!(seen.contains(&"session.created".to_string()), "{:?}", seen);
    assert_eq!(Arc::strong_count(&records), 1, "the runtime has given the closure back");
}

#[test]
fn memory_is_counted_and_capped() {
    let runtime = builder().memory_limit(1 << 20).build().unwrap();
    let cpu = runtime.device("cpu").unwrap();
    let before = cpu.memory_stats().unwrap();
    assert_eq!(before.limit, Some(1 << 20));
    let tensor = Tensor::zeros(&cpu, DType::Uint8, &[1 << 18]).unwrap();
    let with = cpu.memory_stats().unwrap();
    assert_eq!(with.tensors - before.tensors, 1 << 18);
    let error = Tensor::zeros(&cpu, DType::Uint8, &[1 << 20]).err().unwrap();
    assert_eq!((error.status, error.bytes_requested), (Status::OutOfMemory, 1 << 20), "{}", error);
    assert!(error.bytes_available < 1 << 20);
    cpu.set_memory_limit(None).unwrap();
    drop(Tensor::zeros(&cpu, DType::Uint8, &[1 << 20]).unwrap());
    assert!(cpu.memory_stats().unwrap().peak >= (1 << 20) + (1 << 18));
    drop(tensor);
    cpu.set_cache_policy(Some(0), Trim::Always).unwrap();
    cpu.trim_memory().unwrap();
    cpu.reset_memory_peak().unwrap();
    let after = cpu.memory_stats().unwrap();
    assert_eq!((after.tensors, after.cached, after.limit), (0, 0, None));
    assert_eq!(after.peak, after.current);
    assert_eq!(cpu.set_memory_limit(Some(1)).err().unwrap().status, Status::InvalidArgument);
}

#[test]
fn devices_and_statistics_are_told() {
    let runtime = runtime();
    let devices = runtime.devices().unwrap();
    let info = devices[0].info().unwrap();
    assert_eq!((info.kind, info.name.as_str(), info.state), (DeviceKind::Cpu, "cpu", DeviceState::Ready));
    assert_eq!(devices[0].condition().unwrap(), "");
    assert_eq!(info.compute_units, 2);
    assert_eq!(runtime.device("nonsense").err().unwrap().status, Status::DeviceUnavailable);
    let session = session(&runtime, &double());
    session.trace_start(100).unwrap();
    session.run(&[&vector(&runtime, &[1.0])]).unwrap();
    session.trace_stop().unwrap();
    assert!(session.trace(Format::Text).unwrap().contains("the_Add"));
    assert!(session.memory_stats().unwrap().plan_count >= 1);
    assert!(runtime.statistics(Format::Prometheus).unwrap().contains("evener_requests_total"));
    assert!(runtime.describe_devices(Format::Text).unwrap().contains("cpu"));
    assert!(describe_passes(Format::Json).unwrap().contains("summary"));
    assert!(version().unwrap().starts_with("0."));
}

#[test]
fn a_model_tells_what_it_is() {
    let runtime = runtime();
    let model = Model::from_bytes(&runtime, &double()).unwrap();
    assert_eq!(model.inputs().unwrap()[0].kind, "tensor(float32)");
    assert_eq!(model.outputs().unwrap()[0].dims, Some(vec![Dim::Open("n".into())]));
    assert!(model.describe(Format::Text).unwrap().contains("Add"));
    assert!(model.metadata_keys().unwrap().is_empty());
    assert_eq!(model.metadata("author").unwrap(), None);
    let first = session(&runtime, &product());
    let options =
        SessionOptions { numerics: Numerics::Strict, name: Some("exact".into()), ..Default::default() };
    let second =
        Session::with(&runtime, &Model::from_bytes(&runtime, &product()).unwrap(), &options).unwrap();
    let x = Tensor::from_vec(&runtime, vec![0.5f32; 128], &[2, 64]).unwrap();
    assert!(first.compare(&second, &[&x], Format::Json).unwrap().contains("largest_error"));
    assert!(runtime.statistics(Format::Json).unwrap().contains("\"exact\""));
    let bad = SessionOptions { device: Some("nonsense".into()), ..Default::default() };
    assert!(Session::with(&runtime, &model, &bad).is_err());
}

fn rows(runtime: &Runtime, seed: usize) -> Tensor {
    let data = (0..16 * 64).map(|i| ((i * 31 + seed * 7) % 17) as f32 / 17.0 - 0.5).collect();
    Tensor::from_vec::<f32>(runtime, data, &[16, 64]).unwrap()
}

#[test]
fn a_model_is_quantized() {
    let runtime = runtime();
    let source = product();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let count = move |_what: &str, _done, _total| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    };
    let options = QuantizerOptions { progress: Some(Box::new(count)), ..Default::default() };
    let quantizer = Quantizer::new(&runtime, &Source::Bytes(&source, None), options).unwrap();
    assert_eq!(quantizer.finish().err().unwrap().status, Status::WrongState, "no batch was added");
    for seed in 0..3 {
        quantizer.add_batch(&[("x", &rows(&runtime, seed))]).unwrap();
    }
    let wrong = Tensor::from_slice(&runtime, &[1i32], &[1]).unwrap();
    assert_eq!(quantizer.add_batch(&[("x", &wrong)]).err().unwrap().status, Status::InvalidArgument);
    let only_error = GuardOptions { flags: sys::EVN_GUARD_ERROR, ..Default::default() };
    quantizer.guard(&[("x", &rows(&runtime, 5))], &only_error).unwrap();
    let model = quantizer.finish().unwrap();
    quantizer.verify(&[("x", &rows(&runtime, 6))]).unwrap();
    let report = quantizer.report(Format::Json).unwrap().replace(' ', "");
    assert!(report.contains("\"quantized_nodes\":1"), "{}", report);
    assert!(calls.load(Ordering::Relaxed) > 0);
    let file = Temporary::new("quantized.onnx", b"");
    quantizer.save(&file.0).unwrap();
    let x = rows(&runtime, 9);
    let float = session(&runtime, &source).run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap();
    let int8 = Session::new(&runtime, &model).unwrap().run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap();
    let again = Session::new(&runtime, &Model::load(&runtime, &file.0).unwrap()).unwrap();
    assert_eq!(again.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), int8);
    let (mut error, mut signal) = (0.0, 0.0);
    for (float, int8) in float.iter().zip(&int8) {
        error += (float - int8).powi(2);
        signal += float.powi(2);
    }
    assert!(error > 0.0 && error < signal / 100.0, "error {} of {}", error, signal);
}

#[test]
fn weights_alone_are_quantized() {
    let runtime = runtime();
    let options = QuantizerOptions { mode: QuantizeMode::Weights, ..Default::default() };
    let quantizer = Quantizer::new(&runtime, &Source::Bytes(&product(), None), options).unwrap();
    let model = quantizer.finish().unwrap();
    Session::new(&runtime, &model).unwrap().run(&[&rows(&runtime, 9)]).unwrap();
}

#[test]
fn progress_cancels_a_quantization() {
    let runtime = runtime();
    let source = product();
    let cancels: [QuantizeProgress; 2] =
        [Box::new(|_, _, _| false), Box::new(|_, _, _| panic!("progress panics"))];
    for progress in cancels {
        let options = QuantizerOptions { progress: Some(progress), ..Default::default() };
        let quantizer = Quantizer::new(&runtime, &Source::Bytes(&source, None), options).unwrap();
        let error = quantizer.add_batch(&[("x", &rows(&runtime, 0))]).err().unwrap();
        assert_eq!(error.status, Status::Cancelled);
    }
}
