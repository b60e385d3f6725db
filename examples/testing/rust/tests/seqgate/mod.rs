//! A broker in a process of its own, which fails as the test orders.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use minreq::{Method, Request};
use serde_json::{json, Value};

/// One broker for all tests. It ends with the process of the tests.
pub struct Broker {
    pub bootstrap: String,
    control: String,
    _process: Child,
}

impl Broker {
    /// Return the broker with nothing in it but a topic of one partition. Tests take turns.
    pub fn with_topic(name: &str) -> MutexGuard<'static, Self> {
        static BROKER: OnceLock<Mutex<Broker>> = OnceLock::new();
        let broker = BROKER.get_or_init(|| Mutex::new(Self::start()));
        let broker = broker.lock().unwrap_or_else(PoisonError::into_inner);
        broker.ask(Method::Post, "/reset", Value::Null);
        broker.ask(Method::Post, "/topics", json!({"name": name}));
        broker
    }

    /// Start `seqgate serve`.
    fn start() -> Self {
        let options =
            "--listen 127.0.0.1:0 --test-control 127.0.0.1:0 --set seqgate.logging.level=ERROR";
        let mut process = Command::new("seqgate")
            .arg("serve")
            .args(options.split(' '))
            .args(["--exit-with", &std::process::id().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("seqgate is on the PATH");
        let mut lines = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut word_after = |text: &str| {
            let line = lines.find_map(|line| line.strip_prefix(text).map(str::to_owned));
            line.expect("seqgate starts")
                .split([' ', ','])
                .next()
                .unwrap()
                .to_owned()
        };
        let control = word_after("test control on ");
        let bootstrap = word_after("seqgate ready on ");
        Self {
            bootstrap,
            control,
            _process: process,
        }
    }

    /// Send a request to the test control, and return its answer.
    fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let request = Request::new(method, format!("{}{path}", self.control));
        let answer = request.with_json(&body).unwrap().send().unwrap();
        assert_eq!(
            answer.status_code,
            200,
            "{path}: {}",
            answer.as_str().unwrap()
        );
        answer.json().unwrap()
    }

    /// Let requests fail: docs/testing.md of Seqgate has the faults. Return the number of the fault.
    pub fn order(&self, fault: Value) -> u64 {
        self.ask(Method::Post, "/faults", fault)["id"]
            .as_u64()
            .unwrap()
    }

    /// Return how many requests a fault has struck.
    pub fn struck(&self, fault: u64) -> u64 {
        self.ask(Method::Get, &format!("/faults/{fault}"), Value::Null)["struck"]
            .as_u64()
            .unwrap()
    }

    /// End the broker as kill -9 does, and start it again.
    pub fn kill(&self) {
        self.ask(Method::Post, "/restart", json!({"after": "kill"}));
    }

    /// Fail with a sentence that names lost, doubled and reordered values.
    pub fn assert_exactly_once(&self, topic: &str, values: &[String]) {
        let compared = self.ask(
            Method::Post,
            &format!("/topics/{topic}/exactly-once"),
            json!({"values": values}),
        );
        assert!(
            compared["complaint"].is_null(),
            "topic {topic}: {}",
            compared["complaint"]
        );
    }
}
