//! Tensors: typed views, memory that is shared, strings, values.

mod common;

use common::*;
use evener::*;

#[test]
fn objects_are_for_all_threads() {
    fn any_thread<T: Send + Sync + 'static>() {}
    any_thread::<Runtime>();
    any_thread::<Device>();
    any_thread::<Model>();
    any_thread::<Session>();
    any_thread::<Tensor>();
    any_thread::<Value>();
    any_thread::<State>();
    any_thread::<Request>();
    any_thread::<Request<Value>>();
    any_thread::<CompletionQueue>();
    any_thread::<Cancel>();
    any_thread::<Event>();
    any_thread::<PendingCopy>();
    any_thread::<Quantizer>();
    any_thread::<Error>();
    any_thread::<View<'static, f32>>();
}

#[test]
fn a_vec_becomes_a_tensor_without_a_copy() {
    let runtime = runtime();
    let data = vec![1.0f32, 2.0, 3.0, 4.0];
    let at = data.as_ptr();
    let tensor = Tensor::from_vec(&runtime, data, &[2, 2]).unwrap();
    assert_eq!(tensor.view::<f32>().unwrap().as_ptr(), at);
    assert_eq!(tensor.dims().unwrap(), [2, 2]);
    assert_eq!(tensor.info().unwrap().device, "cpu");
}

#[test]
fn a_wrong_shape_is_an_error_and_the_memory_goes() {
    let runtime = runtime();
    let error = Tensor::from_vec(&runtime, vec![0u8; 3], &[2, 2]).err().unwrap();
    assert_eq!(error.status, Status::InvalidArgument, "{}", error);
    let error = Tensor::from_vec(&runtime, vec![0u8; 3], &[-3]).err().unwrap();
    assert_eq!(error.status, Status::InvalidArgument, "{}", error);
}

#[test]
fn a_wrong_dtype_is_an_error() {
    let runtime = runtime();
    let mut tensor = vector(&runtime, &[1.0, 2.0]);
    assert_eq!(tensor.view::<i32>().err().unwrap().status, Status::InvalidArgument);
    assert_eq!(tensor.view_mut::<u8>().err().unwrap().status, Status::InvalidArgument);
    let error = Tensor::from_vec_as(&runtime, DType::Float16, vec![1.0f32], &[1]).err().unwrap();
    assert!(error.message.contains("Float16") && error.message.contains("f32"), "{}", error);
    let half = Tensor::from_vec_as(&runtime, DType::Float16, vec![0x3c00u16], &[1]).unwrap();
    assert_eq!(half.dtype().unwrap(), DType::Float16);
    assert_eq!(half.to_vec::<u16>().unwrap(), [0x3c00]);
}

#[test]
fn what_shares_memory_is_not_written() {
    let runtime = runtime();
    let mut tensor = vector(&runtime, &[1.0, 2.0, 3.0, 4.0]);
    tensor.view_mut::<f32>().unwrap()[1] = 7.0;
    let mut part = tensor.part(1, &[2]).unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [7.0, 3.0]);
    assert_eq!(tensor.view_mut::<f32>().err().unwrap().status, Status::WrongState);
    assert_eq!(part.view_mut::<f32>().err().unwrap().status, Status::WrongState);
    drop(tensor);
    let mut view = part.view_mut::<f32>().unwrap();
    view[0] = 8.0;
    view.end().unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [8.0, 3.0]);
    assert_eq!(part.part(1, &[2]).err().unwrap().status, Status::InvalidArgument);
}

#[test]
fn a_tensor_outlives_its_runtime() {
    let tensor = vector(&runtime(), &[5.0]);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [5.0]);
}

#[test]
fn copies_are_copies() {
    let runtime = runtime();
    let cpu = runtime.cpu().unwrap();
    let source = vector(&runtime, &[1.0, 2.0]);
    let mut target = Tensor::zeros(&cpu, DType::Float32, &[2]).unwrap();
    assert_eq!(target.to_vec::<f32>().unwrap(), [0.0, 0.0]);
    source.copy_into(&mut target).unwrap();
    let mut again = source.copy_to(&cpu).unwrap();
    again.view_mut::<f32>().unwrap()[0] = 9.0;
    assert_eq!(target.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(source.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let pending = source.copy_async(Tensor::zeros(&cpu, DType::Float32, &[2]).unwrap(), &[]).unwrap();
    cpu.wait_event(pending.event()).unwrap();
    assert_eq!(pending.wait().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert!(cpu.record_event().unwrap().wait(None).unwrap());
    let mut small = Tensor::zeros(&cpu, DType::Float32, &[1]).unwrap();
    assert_eq!(source.copy_into(&mut small).err().unwrap().status, Status::InvalidArgument);
}

#[test]
fn strings_are_bytes() {
    let runtime = runtime();
    let texts = [&b"one"[..], b"", b"with \0 in it", "drei ü".as_bytes()];
    let tensor = Tensor::from_strings(&runtime, &texts, &[2, 2]).unwrap();
    assert_eq!(tensor.strings().unwrap(), texts);
    assert_eq!(tensor.string(2).unwrap(), texts[2]);
    assert_eq!(tensor.string(4).err().unwrap().status, Status::InvalidArgument);
    assert!(Tensor::from_strings(&runtime, &texts, &[3]).is_err());
    assert!(tensor.view::<u8>().is_err());
}

#[test]
fn values_share_memory() {
    let runtime = runtime();
    let mut tensors = [vector(&runtime, &[1.0]), vector(&runtime, &[2.0, 3.0])];
    let values = [Value::from_tensor(&tensors[0]).unwrap(), Value::from_tensor(&tensors[1]).unwrap()];
    let sequence = Value::new(&runtime, "seq(tensor(float32))", &[&values[0], &values[1]]).unwrap();
    assert_eq!(sequence.kind().unwrap(), "seq(tensor(float32))");
    drop(values);
    let mut second = sequence.parts().unwrap().pop().unwrap().tensor().unwrap();
    drop(sequence);
    assert_eq!(second.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(tensors[1].view_mut::<f32>().err().unwrap().status, Status::WrongState);
    assert_eq!(second.view_mut::<f32>().err().unwrap().status, Status::WrongState);
    drop(second);
    tensors[1].view_mut::<f32>().unwrap()[0] = 4.0;
    assert!(Value::new(&runtime, "nonsense", &[]).is_err());
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_share_the_memory() {
    use ndarray::{array, s, Array2};
    let runtime = runtime();
    let mut tensor = Tensor::from_array(&runtime, array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]).unwrap();
    assert_eq!(tensor.dims().unwrap(), [2, 3]);
    let view = tensor.view::<f32>().unwrap();
    let seen = view.array().unwrap();
    assert_eq!(seen.as_ptr(), view.as_ptr());
    assert_eq!(seen[[1, 0]], 4.0);
    drop(view);
    tensor.view_mut::<f32>().unwrap().array_mut().unwrap()[[0, 2]] = 9.0;
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0, 9.0, 4.0, 5.0, 6.0]);
    let turned: Array2<f32> = array![[1.0, 2.0], [3.0, 4.0]];
    let tensor = Tensor::from_array(&runtime, turned.reversed_axes()).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    let part = array![1.0f32, 2.0, 3.0].slice_move(s![..2]);
    match Tensor::from_array(&runtime, part) {
        Ok(tensor) => assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0]),
        Err(error) => assert_eq!(error.status, Status::InvalidArgument),
    }
}
