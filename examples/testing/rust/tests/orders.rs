mod seqgate;

use orders::OrderSender;
use seqgate::Broker;
use serde_json::json;

#[test]
fn lost_answers_double_no_order() {
    let broker = Broker::with_topic("orders");
    let fault = broker.order(json!({"fault": "drop_answer", "api": "Produce", "times": 2}));
    let sent = ["one", "two", "three"].map(str::to_owned);
    OrderSender::new(&broker.bootstrap)
        .unwrap()
        .send(&sent)
        .unwrap();
    assert_eq!(broker.struck(fault), 2);
    broker.assert_exactly_once("orders", &sent);
}

#[test]
fn orders_survive_a_killed_broker() {
    let broker = Broker::with_topic("orders");
    let sender = OrderSender::new(&broker.bootstrap).unwrap();
    let sent: Vec<String> = (0..30).map(|number| format!("order {number}")).collect();
    for (number, order) in sent.iter().enumerate() {
        if number == 10 || number == 20 {
            broker.kill();
        }
        sender.send(&[order]).unwrap();
    }
    broker.assert_exactly_once("orders", &sent);
}

#[test]
fn orders_survive_random_faults() {
    let broker = Broker::with_topic("orders");
    let fault = broker
        .order(json!({"fault": "script", "seed": 1, "api": "Produce", "rate": 0.5, "times": 10}));
    let sent: Vec<String> = (0..30).map(|number| format!("order {number}")).collect();
    OrderSender::new(&broker.bootstrap)
        .unwrap()
        .send(&sent)
        .unwrap();
    assert_ne!(broker.struck(fault), 0);
    broker.assert_exactly_once("orders", &sent);
}
