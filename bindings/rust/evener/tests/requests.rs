//! Asynchronous runs: futures on an executor of our own, deadlines, tokens, queues, and what must stay until
//! they end.

mod common;

use common::gate::Gate;
use common::*;
use evener::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

fn gated(runtime: &Runtime) -> (Gate, Session) {
    let gate = Gate::register(runtime);
    let session = session(runtime, &custom("Gate", int_attribute("unused", 0)));
    (gate, session)
}

#[test]
fn sixteen_requests_with_deadlines_are_awaited_together() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let deadline = Some(Instant::now() + Duration::from_secs(600));
    let submit = |number: i32| {
        let x = vector(&runtime, &[number as f32; 100]);
        let options = RunOptions { deadline, priority: number % 3, ..Default::default() };
        session.submit(&[&x], &options).unwrap()
    };
    let requests: Vec<Request> = (0..16).map(submit).collect();
    block_on(async {
        for (number, request) in requests.into_iter().enumerate() {
            let outputs = request.await.unwrap();
            assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [2.0 * number as f32; 100]);
        }
    });
    let statistics = session.statistics(Format::Json).unwrap();
    assert!(
        statistics.contains("\"completed\":16") || statistics.contains("\"completed\": 16"),
        "{}",
        statistics
    );
}

#[test]
fn requests_from_many_threads() {
    let runtime = runtime();
    let session = Arc::new(session(&runtime, &double()));
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let (session, x) = (session.clone(), vector(&runtime, &[number as f32]));
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let request = session.submit(&[&x], &RunOptions::default()).unwrap();
                    assert_eq!(request.wait().unwrap()[0].to_vec::<f32>().unwrap(), [2.0 * number as f32]);
                }
            })
        })
        .collect();
    drop(session);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_deadline_that_has_passed_and_a_token_end_requests() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let x = vector(&runtime, &[1.0]);
    let past = RunOptions { deadline: Some(Instant::now()), ..Default::default() };
    let late = session.submit(&[&x], &past).and_then(Request::wait).err().unwrap();
    assert_eq!(late.status, Status::Timeout);
    let cancel = Cancel::new().unwrap();
    cancel.cancel();
    let cancelled = RunOptions { cancel: Some(&cancel), ..Default::default() };
    let error = session.submit(&[&x], &cancelled).and_then(Request::wait).err().unwrap();
    assert_eq!(error.status, Status::Cancelled);
}

#[test]
fn a_wrong_input_is_the_requests_own_error() {
    let runtime = runtime();
    let session = session(&runtime, &double());
    let wrong = Tensor::from_slice(&runtime, &[1i64], &[1]).unwrap();
    let error = block_on(session.submit(&[&wrong], &RunOptions::default()).unwrap()).err().unwrap();
    assert_eq!(error.status, Status::InvalidArgument);
    assert!(session.submit(&[&wrong, &wrong], &RunOptions::default()).is_err());
}

#[test]
fn inputs_stay_and_are_not_written_while_a_request_is_in_flight() {
    let runtime = runtime();
    let (gate, session) = gated(&runtime);
    let mut x = vector(&runtime, &[1.0, 2.0]);
    let request = session.submit(&[&x], &RunOptions::default()).unwrap();
    let dropped = vector(&runtime, &[3.0]);
    let other = session.submit(&[&dropped], &RunOptions::default()).unwrap();
    drop(dropped);
    gate.wait_for(2);
    assert_eq!(x.view_mut::<f32>().err().unwrap().status, Status::WrongState);
    assert!(!request.wait_for(Some(Duration::ZERO)).unwrap());
    // All that it needs is dropped but the request: it ends normally.
    drop(session);
    drop(runtime);
    gate.open();
    assert_eq!(request.wait().unwrap()[0].to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(other.wait().unwrap()[0].to_vec::<f32>().unwrap(), [3.0]);
    x.view_mut::<f32>().unwrap()[0] = 5.0;
}

#[test]
fn a_session_is_closed_during_a_run() {
    let runtime = runtime();
    let (gate, session) = gated(&runtime);
    let session = Arc::new(session);
    let x = vector(&runtime, &[4.0]);
    let running = session.clone();
    let thread = std::thread::spawn(move || running.run(&[&x]).unwrap()[0].to_vec::<f32>().unwrap());
    gate.wait_for(1);
    drop(session);
    drop(runtime);
    gate.open();
    assert_eq!(thread.join().unwrap(), [4.0]);
}

#[test]
fn finish_waits_for_requests() {
    let runtime = runtime();
    let (gate, session) = gated(&runtime);
    let x = vector(&runtime, &[4.0]);
    let request = session.submit(&[&x], &RunOptions::default()).unwrap();
    gate.wait_for(1);
    assert_eq!(session.finish(Some(Duration::from_millis(1))).err().unwrap().status, Status::Timeout);
    gate.open();
    assert_eq!(request.wait().unwrap()[0].to_vec::<f32>().unwrap(), [4.0]);
}

#[test]
fn a_request_that_is_dropped_is_cancelled_and_one_that_is_detached_is_not() {
    let runtime = builder().threads(1).build().unwrap();
    let (gate, session) = gated(&runtime);
    let x = vector(&runtime, &[1.0]);
    let first = session.submit(&[&x], &RunOptions::default()).unwrap();
    gate.wait_for(1);
    // The one thread is taken: these wait in the queue.
    drop(session.submit(&[&x], &RunOptions::default()).unwrap());
    session.submit(&[&x], &RunOptions::default()).unwrap().detach();
    gate.open();
    first.wait().unwrap();
    session.submit(&[&x], &RunOptions::default()).unwrap().wait().unwrap();
    let statistics = loop {
        let text = session.statistics(Format::Json).unwrap().replace(' ', "");
        let all = text.split("\"all\":").nth(1).expect("all").to_string();
        if all.contains("\"completed\":3") && all.contains("\"cancelled\":1") {
            break all;
        }
        assert!(!all.contains("\"completed\":4"), "{}", all);
        std::thread::yield_now();
    };
    assert!(statistics.contains("\"failed\":0"), "{}", statistics);
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

#[test]
fn a_panic_of_a_waker_stays_on_our_side() {
    let runtime = runtime();
    let (gate, session) = gated(&runtime);
    let x = vector(&runtime, &[1.0]);
    let mut request = session.submit(&[&x], &RunOptions::default()).unwrap();
    let waker: Waker = Arc::new(Panics).into();
    let polled = Pin::new(&mut request).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    gate.open();
    assert!(request.wait_for(None).unwrap());
    session.finish(None).unwrap();
    assert!(block_on(&mut request).is_ok());
    // A future that is polled once more gives an error, and does not hang.
    match Pin::new(&mut request).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(Err(error)) => assert_eq!(error.status, Status::WrongState),
        _ => panic!("it was taken"),
    }
}

#[test]
fn a_queue_gives_what_has_ended() {
    let runtime = runtime();
    let (gate, gated_session) = gated(&runtime);
    let doubling = session(&runtime, &double());
    let queue = CompletionQueue::new().unwrap();
    assert!(queue.next(Some(Duration::ZERO)).unwrap().is_none());
    let mut x = vector(&runtime, &[21.0]);
    gated_session.submit_to(&queue, 1, &[&x], &RunOptions::default()).unwrap();
    gate.wait_for(1);
    assert_eq!(x.view_mut::<f32>().err().unwrap().status, Status::WrongState);
    doubling.submit_to(&queue, 2, &[&x], &RunOptions::default()).unwrap();
    let wrong = Tensor::from_slice(&runtime, &[1i64], &[1]).unwrap();
    let first = queue.next(None).unwrap().expect("a completion");
    assert_eq!(first.key, 2);
    assert_eq!(first.result.unwrap()[0].to_vec::<f32>().unwrap(), [42.0]);
    doubling.submit_to(&queue, 3, &[&wrong], &RunOptions::default()).unwrap();
    let second = queue.next(None).unwrap().expect("a completion");
    assert_eq!((second.key, second.result.err().unwrap().status), (3, Status::InvalidArgument));
    assert!(queue.descriptor().unwrap() >= 0);
    gate.open();
    let third = queue.next(None).unwrap().expect("a completion");
    assert_eq!((third.key, third.result.is_ok()), (1, true));
    x.view_mut::<f32>().unwrap()[0] = 1.0;
    // What nobody takes goes with the queue, and with it what it kept.
    doubling.submit_to(&queue, 4, &[&x], &RunOptions::default()).unwrap();
    drop(queue);
    doubling.finish(None).unwrap();
    let mut looks = 0;
    while x.view_mut::<f32>().is_err() {
        looks += 1;
        assert!(looks < 60_000, "the queue has gone, and keeps the memory");
        std::thread::sleep(Duration::from_millis(1)); // the thread that ended the request ends the queue
    }
}
