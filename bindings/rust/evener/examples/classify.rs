//! Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
//!
//! usage: classify MODEL.onnx [CONFIG.yaml]

use evener::{Dim, Format, Model, RunOptions, Runtime, Session, Tensor};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: classify MODEL.onnx [CONFIG.yaml]")?;
    let runtime = match arguments.next() {
        Some(config) => Runtime::builder().config_path(config).build()?,
        None => Runtime::new()?,
    };
    let model = Model::load(&runtime, path)?;
    let session = Session::new(&runtime, &model)?;

    // A dim that the model leaves open is 1 here.
    let cpu = runtime.cpu()?;
    let mut inputs = Vec::new();
    for input in session.inputs()? {
        let dims = input.dims.ok_or_else(|| format!("input {} has no rank", input.name))?;
        let dims: Vec<i64> =
            dims.iter().map(|dim| if let Dim::Known(size) = dim { *size } else { 1 }).collect();
        inputs.push(Tensor::zeros(&cpu, input.dtype, &dims)?);
    }
    let inputs: Vec<&Tensor> = inputs.iter().collect();

    let outputs = session.run(&inputs)?;
    for (index, output) in session.outputs()?.iter().enumerate() {
        println!("{}: {:?}", output.name, outputs[index].dims()?);
    }

    // Requests are futures, which any executor can await; here they are waited for.
    let options = RunOptions { timeout: Some(Duration::from_secs(30)), ..Default::default() };
    let requests = (0..4).map(|_| session.submit(&inputs, &options)).collect::<evener::Result<Vec<_>>>()?;
    for request in requests {
        request.wait()?;
    }
    println!("{}", session.explain(Format::Text)?);
    Ok(())
}
