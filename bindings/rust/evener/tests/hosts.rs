//! What a host shares with the library: its threads, its OpenCL objects, memory by DLPack.

mod common;

use common::*;
use evener::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};

/// Two scoped threads for each call, and one thread for what is posted.
#[derive(Clone)]
struct Threads {
    calls: Arc<AtomicUsize>,
    posted: Arc<Mutex<mpsc::Sender<PostedTask>>>,
}

impl Threads {
    fn new() -> (Threads, std::thread::JoinHandle<usize>) {
        let (sender, receiver) = mpsc::channel::<PostedTask>();
        let thread = std::thread::spawn(move || receiver.into_iter().map(PostedTask::run).count());
        let posted = Arc::new(Mutex::new(sender));
        (Threads { calls: Arc::default(), posted }, thread)
    }
}

impl Executor for Threads {
    fn parallel_for(&self, count: u32, task: &(dyn Fn(u32) + Sync)) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).step_by(2).for_each(task));
            (1..count).step_by(2).for_each(task);
        });
    }
    fn post(&self, task: PostedTask) -> std::result::Result<(), PostedTask> {
        let sender = self.posted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sender.send(task).map_err(|error| error.0)
    }
}

fn square(runtime: &Runtime) -> Tensor {
    let data = (0..256 * 64).map(|i| (i % 13) as f32 - 6.0).collect();
    Tensor::from_vec::<f32>(runtime, data, &[256, 64]).unwrap()
}

#[test]
fn an_executor_of_the_hosts_gives_the_same_bits() {
    let plain = runtime();
    let expected = session(&plain, &product()).run(&[&square(&plain)]).unwrap()[0].to_vec::<f32>().unwrap();
    let (threads, worker) = Threads::new();
    let calls = threads.calls.clone();
    let hosted = builder().executor(threads).build().unwrap();
    let placed = session(&hosted, &product());
    let x = square(&hosted);
    assert_eq!(placed.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap(), expected);
    assert!(calls.load(Ordering::Relaxed) > 0);
    for _ in 0..3 {
        let request = placed.submit(&[&x], &RunOptions::default()).unwrap();
        assert_eq!(block_on(request).unwrap()[0].to_vec::<f32>().unwrap(), expected);
    }
    drop((placed, x, hosted));
    // The runtime has given the executor back, and with it the sender.
    assert_eq!(worker.join().unwrap(), 3);
}

/// Leaves its work to others: it panics, and drops what is posted.
struct Bad {
    keeps: Arc<Mutex<Vec<PostedTask>>>,
    refuses: bool,
}

impl Executor for Bad {
    fn parallel_for(&self, _count: u32, _task: &(dyn Fn(u32) + Sync)) {
        panic!("an executor panics");
    }
    fn post(&self, task: PostedTask) -> std::result::Result<(), PostedTask> {
        if self.refuses {
            return Err(task);
        }
        self.keeps.lock().unwrap().push(task);
        panic!("it has taken the task, and panics");
    }
}

#[test]
fn a_bad_executor_costs_time_and_nothing_else() {
    let keeps = Arc::new(Mutex::new(Vec::new()));
    let hosted = builder().executor(Bad { keeps: keeps.clone(), refuses: false }).build().unwrap();
    let placed = session(&hosted, &product());
    let x = square(&hosted);
    assert_eq!(placed.run(&[&x]).unwrap()[0].dims().unwrap(), [256, 64]);
    let request = placed.submit(&[&x], &RunOptions::default()).unwrap();
    let kept = keeps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
    assert!(!request.wait_for(Some(std::time::Duration::ZERO)).unwrap());
    drop(kept.expect("it was taken")); // where it is dropped it is run
    assert!(request.wait().is_ok());
    let refusing = builder().executor(Bad { keeps, refuses: true }).build().unwrap();
    let placed = session(&refusing, &double());
    let x = vector(&refusing, &[1.0]);
    let refused = placed.submit(&[&x], &RunOptions::default()).and_then(Request::wait);
    assert_eq!(refused.err().unwrap().status, Status::Unsupported);
}

#[test]
fn memory_goes_through_dlpack_without_a_copy() {
    let runtime = runtime();
    let tensor = vector(&runtime, &[1.0, 2.0, 3.0]);
    let at = tensor.view::<f32>().unwrap().as_ptr();
    let managed = tensor.to_dlpack().unwrap();
    drop(tensor);
    let again = unsafe { Tensor::from_dlpack(&runtime, managed) }.unwrap();
    assert_eq!(again.view::<f32>().unwrap().as_ptr(), at);
    assert_eq!(again.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert!(Tensor::from_strings(&runtime, &["a"], &[1]).unwrap().to_dlpack().is_err());
}

#[test]
fn opencl_objects_are_shared() {
    let owner = runtime();
    let device = match owner.device("opencl:0") {
        Ok(device) => device,
        Err(error) if std::env::var_os("EVENER_REQUIRE").is_some() => {
            panic!("EVENER_REQUIRE is set: {}", error)
        }
        Err(error) => return eprintln!("skipped: {}", error),
    };
    let objects = device.opencl_objects().unwrap();
    assert!(!objects.context.is_null() && !objects.device.is_null() && !objects.queue.is_null());
    assert_eq!(owner.cpu().unwrap().opencl_objects().err().unwrap().status, Status::InvalidArgument);
    // The context of one runtime is the host's for another.
    let guest = runtime();
    let given = OpenClObjects { queue: std::ptr::null_mut(), ..objects };
    let attached = unsafe { guest.attach_opencl("shared", given, 0) }.unwrap();
    assert_eq!(attached.info().unwrap().name, "shared");
    let source = vector(&owner, &[1.0, 2.0, 3.0, 4.0]).copy_to(&device).unwrap();
    let (mem, offset) = source.opencl_buffer().unwrap();
    let mut there = Tensor::zeros(&device, DType::Float32, &[2]).unwrap();
    let mut view = there.view_mut::<f32>().unwrap();
    view[1] = 5.0;
    view.end().unwrap();
    assert_eq!(there.to_vec::<f32>().unwrap(), [0.0, 5.0]);
    let written = device.record_event().unwrap();
    assert!(written.wait(None).unwrap());
    let ended = Arc::new(());
    let tells = ended.clone();
    let wrapped = unsafe {
        attached.wrap_opencl_buffer(mem, offset, DType::Float32, &[4], true, move || drop(tells)).unwrap()
    };
    assert!(wrapped.info().unwrap().read_only);
    let on = Session::on(&guest, &Model::from_bytes(&guest, &double()).unwrap(), &attached).unwrap();
    assert_eq!(on.run(&[&wrapped]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    drop(wrapped);
    assert_eq!(Arc::strong_count(&ended), 1);
    let wrong = unsafe { attached.wrap_opencl_buffer(mem, u64::MAX, DType::Float32, &[4], true, || ()) };
    assert!(wrong.is_err());
    let event = attached.record_event().unwrap();
    let native = event.export_opencl(&attached).unwrap();
    let imported = unsafe { attached.import_opencl_event(native) }.unwrap();
    assert!(imported.wait(None).unwrap());
    assert!(owner.cpu().unwrap().store_opencl_programs("/nowhere", false).is_err());
}
