//! Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
//!
//! usage: classify MODEL.onnx [CONFIG.yaml [SIZE ...]]

use evener::{Dim, Format, Model, RunOptions, Runtime, Session, Tensor};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: classify MODEL.onnx [CONFIG.yaml [SIZE ...]]")?;
    let runtime = match arguments.next() {
        Some(config) if !config.is_empty() => Runtime::builder().config_path(config).build()?,
        _ => Runtime::new()?,
    };
    let model = Model::load(&runtime, path)?;
    let session = Session::new(&runtime, &model)?;

    // Dims that the model leaves open have the sizes that are given, in their order, else 1 on axis 0 and 128
    // elsewhere.
    let cpu = runtime.cpu()?;
    let mut inputs = Vec::new();
    for input in session.inputs()? {
        let dims = input.dims.ok_or_else(|| format!("input {} has no rank", input.name))?;
        let mut sizes = Vec::new();
        for (axis, dim) in dims.iter().enumerate() {
            sizes.push(match dim {
                Dim::Known(size) => *size,
                _ => match arguments.next() {
                    Some(size) => size.parse()?,
                    None => {
                        if axis == 0 {
                            1
                        } else {
                            128
                        }
                    }
                },
            });
        }
        inputs.push(Tensor::zeros(&cpu, input.dtype, &sizes)?);
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
