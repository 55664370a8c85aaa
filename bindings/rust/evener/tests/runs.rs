//! Runs: inputs that do not fit, options, outputs in place, states, values, operators in Rust.

mod common;

use common::gate::Gate;
use common::*;
use evener::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_model_runs_by_place_and_by_name() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let x = vector(&runtime, &[1.0, -2.0]);
    assert_eq!(session.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0, -4.0]);
    let named = session.run_named(&[("x", &x)], &RunOptions::default()).unwrap();
    assert_eq!(named[0].to_vec::<f32>().unwrap(), [2.0, -4.0]);
    let error = session.run_named(&[("z", &x)], &RunOptions::default()).err().unwrap();
    assert!(error.status == Status::InvalidArgument && error.message.contains('x'), "{}", error);
    let error = session.run_named(&[], &RunOptions::default()).err().unwrap();
    assert_eq!(error.message, "input 'x' is missing");
    assert_eq!(session.inputs().unwrap()[0].dims, Some(vec![Dim::Open("n".into())]));
    assert_eq!(session.find_output("y").unwrap(), 0);
}

#[test]
fn an_input_with_a_default_is_given_or_left_out() {
    let runtime = runtime();
    let model = Model::from_bytes(&runtime, &scale()).unwrap();
    let names = |infos: Vec<ValueInfo>| infos.into_iter().map(|info| info.name).collect::<Vec<_>>();
    assert_eq!(names(model.defaults().unwrap()), ["k", "b"]);
    let with = |overridable: &[&str]| SessionOptions {
        overridable: overridable.iter().map(|name| name.to_string()).collect(),
        ..Default::default()
    };
    let refused = Session::with(&runtime, &model, &with(&["x"])).err().unwrap();
    assert_eq!(refused.status, Status::InvalidArgument);
    let (x, mut y) = (vector(&runtime, &[1.0, 2.0]), vector(&runtime, &[0.0, 0.0]));
    let k = Tensor::from_slice(&runtime, &[5f32], &[]).unwrap();
    let b = Tensor::from_slice(&runtime, &[3f32], &[]).unwrap();
    let options = RunOptions::default();
    let choices: [&[&str]; 3] = [&[], &["b"], &["k", "b"]];
    for overridable in choices {
        let session = Session::with(&runtime, &model, &with(overridable)).unwrap();
        assert_eq!(names(session.inputs().unwrap()), ["x"]);
        assert_eq!(names(session.defaults().unwrap()), ["k", "b"]);
        for _ in 0..2 {
            for (k, b, wanted) in [
                (None, None, [3f32, 5.0]),
                (Some(&k), None, [6.0, 11.0]),
                (None, Some(&b), [5.0, 7.0]),
                (Some(&k), Some(&b), [8.0, 13.0]),
            ] {
                let listed = [Some(&x), k, b];
                let given = [("x", Some(&x)), ("k", k), ("b", b)];
                let named: Vec<_> =
                    given.iter().filter_map(|(name, tensor)| tensor.map(|tensor| (*name, tensor))).collect();
                assert_eq!(session.run(&listed).unwrap()[0].to_vec::<f32>().unwrap(), wanted);
                assert_eq!(session.run_named(&named, &options).unwrap()[0].to_vec::<f32>().unwrap(), wanted);
                session.run_into(&listed, &mut [&mut y], &options).unwrap();
                assert_eq!(y.to_vec::<f32>().unwrap(), wanted);
            }
            assert_eq!(session.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0, 5.0]);
        }
        let missing = session.run_named(&[("k", &k)], &options).err().unwrap();
        assert_eq!(missing.message, "input 'x' is missing");
    }
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let wrong_dtype = Tensor::from_slice(&runtime, &[1i32], &[1]).unwrap();
    let error = session.run(&[&wrong_dtype]).err().unwrap();
    assert!(error.status == Status::InvalidArgument && error.message.contains('x'), "{}", error);
    let wrong_rank = Tensor::from_slice(&runtime, &[1f32], &[1, 1]).unwrap();
    assert_eq!(session.run(&[&wrong_rank]).err().unwrap().status, Status::InvalidArgument);
    let x = vector(&runtime, &[1.0]);
    assert_eq!(session.run(&[&x, &x]).err().unwrap().status, Status::InvalidArgument);
    assert_eq!(session.run(&[None::<&Tensor>]).err().unwrap().status, Status::InvalidHandle);
    let skip = RunOptions { skip: &[1], ..Default::default() };
    assert!(session.run_with(&[&x], &skip).err().unwrap().message.contains("no output 1"));
}

#[test]
fn errors_name_the_node() {
    let runtime = runtime();
    let error = Model::from_bytes(&runtime, &custom("NoSuch", int_attribute("a", 1))).err().unwrap();
    assert_eq!(error.status, Status::Unsupported, "{}", error);
    assert_eq!(error.node, "the_NoSuch");
    assert!(error.to_string().contains("[node the_NoSuch]"));
    assert_eq!(Model::from_bytes(&runtime, b"no model").err().unwrap().status, Status::InvalidModel);
    assert_eq!(Model::load(&runtime, "/nowhere.onnx").err().unwrap().status, Status::Io);
    assert!(Model::load(&runtime, "with\0nul").err().unwrap().message.contains("NUL"));
}

#[test]
fn outputs_go_into_tensors_that_there_are() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let x = vector(&runtime, &[1.0, 2.0]);
    let mut y = vector(&runtime, &[0.0, 0.0]);
    session.run_into(&[&x], &mut [&mut y], &RunOptions::default()).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert!(session.run_into(&[&x], &mut [], &RunOptions::default()).is_err());
    let part = y.part(0, &[1]).unwrap();
    let shared = session.run_into(&[&x], &mut [&mut y], &RunOptions::default()).err().unwrap();
    assert_eq!(shared.status, Status::WrongState);
    drop(part);
    let mut short = vector(&runtime, &[0.0]);
    assert!(session.run_into(&[&x], &mut [&mut short], &RunOptions::default()).is_err());
}

#[test]
fn deadlines_and_tokens_end_runs() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let x = vector(&runtime, &[1.0]);
    let past = RunOptions { deadline: Some(Instant::now()), ..Default::default() };
    assert_eq!(session.run_with(&[&x], &past).err().unwrap().status, Status::Timeout);
    let far = Instant::now() + Duration::from_secs(3600);
    let far =
        RunOptions { deadline: Some(far), timeout: Some(Duration::from_secs(3600)), ..Default::default() };
    assert!(session.run_with(&[&x], &far).is_ok());
    let cancel = Cancel::new().unwrap();
    let with_cancel = RunOptions { cancel: Some(&cancel), ..Default::default() };
    assert!(session.run_with(&[&x], &with_cancel).is_ok());
    cancel.clone().cancel();
    assert_eq!(session.run_with(&[&x], &with_cancel).err().unwrap().status, Status::Cancelled);
}

#[test]
fn a_state_goes_from_run_to_run() {
    let runtime = runtime();
    let session = session(&runtime, &running_sum());
    let state = State::new(&session, &[("total", "sum", 0)], &StateOptions::default()).unwrap();
    let x = vector(&runtime, &[1.0, 2.0]);
    let options = RunOptions { state: Some(&state), ..Default::default() };
    let run = |options: &RunOptions| {
        let mut outputs = session.run_with(&[Some(&x), None], options).unwrap();
        assert!(outputs.get(0).is_none(), "the state has it");
        outputs.take(1).unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(run(&options), [-1.0, -2.0]);
    let fork = state.fork().unwrap();
    let saved = state.save().unwrap();
    assert_eq!(run(&options), [-2.0, -4.0]);
    assert_eq!(run(&RunOptions { state: Some(&fork), ..Default::default() }), [-2.0, -4.0]);
    state.reset().unwrap();
    assert_eq!(run(&options), [-1.0, -2.0]);
    state.restore(&saved).unwrap();
    assert_eq!(run(&options), [-2.0, -4.0]);
    assert_eq!(state.length(0).unwrap(), 0);
    state.truncate(0).unwrap();
    assert!(state.describe(Format::Json).unwrap().contains("\"total\""));
    assert_eq!(state.restore(b"other").err().unwrap().status, Status::InvalidArgument);
    assert!(State::new(&session, &[("none", "sum", 0)], &StateOptions::default()).is_err());
}

#[test]
fn values_go_in_and_out() {
    let runtime = runtime();
    let sequence = Message::default().message(4, Message::default().message(1, tensor_type(FLOAT, &["n"])));
    let inputs = vec![value("x", tensor_type(FLOAT, &["n"]))];
    let nodes = vec![node("SequenceConstruct", &["x", "x"], &["s"])];
    let session = session(&runtime, &model(nodes, inputs, vec![value("s", sequence)], vec![]));
    let x = Value::from_tensor(&vector(&runtime, &[3.0])).unwrap();
    let outputs = session.run_values(&[Some(&x)], &RunOptions::default()).unwrap();
    let request = session.submit_values(&[Some(&x)], &RunOptions::default()).unwrap();
    assert_eq!(block_on(request).unwrap()[0].kind().unwrap(), "seq(tensor(float32))");
    let parts = outputs[0].parts().unwrap();
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1].tensor().unwrap().to_vec::<f32>().unwrap(), [3.0]);
}

#[test]
fn sequences_share_the_memory_of_what_they_are_made_of() {
    let runtime = runtime();
    let sequence = Message::default().message(4, Message::default().message(1, tensor_type(FLOAT, &["n"])));
    let inputs = vec![value("s", sequence.clone()), value("x", tensor_type(FLOAT, &["n"]))];
    let nodes = vec![node("SequenceInsert", &["s", "x"], &["more"])];
    let session = session(&runtime, &model(nodes, inputs, vec![value("more", sequence)], vec![]));
    let options = RunOptions::default();
    for is_submitted in [false, true] {
        let mut x = vector(&runtime, &[1.0]);
        let outputs = {
            let v = Value::from_tensor(&x).unwrap();
            let s = Value::new(&runtime, "seq(tensor(float32))", &[&v]).unwrap();
            if is_submitted {
                let request = session.submit_values(&[Some(&s), Some(&v)], &options).unwrap();
                assert!(request.wait_for(None).unwrap());
                drop((v, s));
                assert_eq!(x.view_mut::<f32>().err().unwrap().status, Status::WrongState);
                request.wait().unwrap()
            } else {
                session.run_values(&[Some(&s), Some(&v)], &options).unwrap()
            }
        };
        let part = outputs[0].parts().unwrap()[0].tensor().unwrap();
        assert_eq!(part.view::<f32>().unwrap().as_ptr(), x.view::<f32>().unwrap().as_ptr());
        assert_eq!(x.view_mut::<f32>().err().unwrap().status, Status::WrongState);
        drop(outputs);
        assert_eq!(x.view_mut::<f32>().err().unwrap().status, Status::WrongState);
        drop(part);
        x.view_mut::<f32>().unwrap()[0] = 2.0;
    }
}

/// y = x * factor.
struct Scale;

impl Operator for Scale {
    fn infer(&self, node: &Node<'_>, inputs: &[Option<TensorRef<'_>>], outputs: usize) -> Result<Vec<Spec>> {
        assert_eq!(outputs, 1);
        assert_eq!(node.name()?, "the_Scale");
        Ok(inputs.iter().flatten().map(TensorRef::spec).collect())
    }
    fn run(
        &self,
        node: &Node<'_>,
        inputs: &[Option<TensorRef<'_>>],
        outputs: &mut [Option<TensorMut<'_>>],
    ) -> Result<()> {
        let factor = node.int("factor")?.unwrap_or(1);
        assert_eq!(node.int("other")?, None);
        if factor == 13 {
            panic!("an unlucky number");
        }
        if factor == 0 {
            return Err(Error::new(Status::Other(0), "no status"));
        }
        if factor < 0 {
            return Err(Error::new(Status::InvalidArgument, "the factor is negative"));
        }
        let x = inputs[0].expect("an input").data::<f32>()?;
        let y = outputs[0].as_mut().expect("an output");
        assert_eq!(y.dims(), [x.len() as i64]);
        for (y, x) in y.data::<f32>()?.iter_mut().zip(x) {
            *y = x * factor as f32;
        }
        Ok(())
    }
}

#[test]
fn an_operator_in_rust() {
    let runtime = runtime();
    runtime.register_operator(&OperatorInfo::new("mine", "Scale"), Scale).unwrap();
    let x = vector(&runtime, &[1.0, 2.0]);
    let run = |factor| session(&runtime, &custom("Scale", int_attribute("factor", factor))).run(&[&x]);
    assert_eq!(run(3).unwrap()[0].to_vec::<f32>().unwrap(), [3.0, 6.0]);
    let error = run(-1).err().unwrap();
    assert_eq!((error.status, error.node.as_str()), (Status::InvalidArgument, "the_Scale"));
    assert!(error.message.contains("the factor is negative"), "{}", error);
    let error = run(0).err().unwrap();
    assert!(error.status == Status::Internal && error.message.contains("no status"), "{}", error);
    let error = run(13).err().unwrap();
    assert!(
        error.status == Status::Internal && error.message.contains("panicked: an unlucky number"),
        "{}",
        error
    );
    let twice = runtime.register_operator(&OperatorInfo::new("mine", "Scale"), Scale);
    assert_eq!(twice.err().unwrap().status, Status::InvalidArgument);
}

#[test]
fn what_an_operator_has_goes_with_the_runtime() {
    let runtime = runtime();
    let gate = Gate::register(&runtime);
    let kept = Arc::new(());
    struct Keeps(Arc<()>);
    impl Operator for Keeps {
        fn infer(&self, _: &Node<'_>, _: &[Option<TensorRef<'_>>], _: usize) -> Result<Vec<Spec>> {
            Ok(vec![])
        }
        fn run(
            &self,
            _: &Node<'_>,
            _: &[Option<TensorRef<'_>>],
            _: &mut [Option<TensorMut<'_>>],
        ) -> Result<()> {
            assert_eq!(Arc::strong_count(&self.0), 2);
            Ok(())
        }
    }
    runtime.register_operator(&OperatorInfo::new("mine", "Keeps"), Keeps(kept.clone())).unwrap();
    let refused = runtime.register_operator(&OperatorInfo::new("", "Keeps"), Keeps(kept.clone()));
    assert!(refused.is_err());
    assert_eq!(Arc::strong_count(&kept), 2, "what was refused has gone");
    gate.open();
    drop(runtime);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn a_raw_handle_that_was_released_is_an_error_and_no_crash() {
    let runtime = runtime();
    let x = vector(&runtime, &[1.0]);
    let raw = x.as_raw();
    drop(x);
    let api = sys::api().unwrap();
    let mut info = sys::evn_tensor_info::INIT;
    let status = unsafe { (api.tensor_get_info)(raw, &mut info, std::ptr::null_mut()) };
    assert_eq!(status, sys::EVN_ERROR_INVALID_HANDLE);
    assert_eq!(unsafe { (api.tensor_release)(raw) }, sys::EVN_ERROR_INVALID_HANDLE);
}
