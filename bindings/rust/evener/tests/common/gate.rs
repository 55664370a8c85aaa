//! An operator that waits until it is told to go on: with it a test says when runs begin and end.

use evener::{Node, Operator, Result, Runtime, Spec, TensorMut, TensorRef};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct Counts {
    began: usize,
    is_open: bool,
}

#[derive(Default, Clone)]
pub struct Gate(Arc<(Mutex<Counts>, Condvar)>);

impl Gate {
    pub fn register(runtime: &Runtime) -> Gate {
        let gate = Gate::default();
        let info = evener::OperatorInfo::new("mine", "Gate");
        runtime.register_operator(&info, gate.clone()).expect("it is registered");
        gate
    }
    /// Waits until so many runs have begun.
    pub fn wait_for(&self, count: usize) {
        let (counts, changed) = &*self.0;
        let counts = counts.lock().expect("not poisoned");
        drop(changed.wait_while(counts, |counts| counts.began < count).expect("not poisoned"));
    }
    pub fn open(&self) {
        let (counts, changed) = &*self.0;
        counts.lock().expect("not poisoned").is_open = true;
        changed.notify_all();
    }
}

impl Operator for Gate {
    fn infer(
        &self,
        _node: &Node<'_>,
        inputs: &[Option<TensorRef<'_>>],
        _outputs: usize,
    ) -> Result<Vec<Spec>> {
        Ok(inputs.iter().flatten().map(TensorRef::spec).collect())
    }
    fn run(
        &self,
        _node: &Node<'_>,
        inputs: &[Option<TensorRef<'_>>],
        outputs: &mut [Option<TensorMut<'_>>],
    ) -> Result<()> {
        let (counts, changed) = &*self.0;
        let mut guard = counts.lock().expect("not poisoned");
        guard.began += 1;
        changed.notify_all();
        drop(changed.wait_while(guard, |counts| !counts.is_open).expect("not poisoned"));
        if let (Some(Some(x)), Some(Some(y))) = (inputs.first(), outputs.first_mut()) {
            y.data::<f32>()?.copy_from_slice(x.data::<f32>()?);
        }
        Ok(())
    }
}
