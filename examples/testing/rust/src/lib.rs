//! Sends orders to Kafka.

use std::sync::mpsc::{sync_channel, SyncSender};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::ClientContext;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Passes the outcome of each delivery on to whoever waits for it.
struct Deliveries;

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<SyncSender<Result<(), KafkaError>>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let outcome = result
            .as_ref()
            .map(|_| ())
            .map_err(|(error, _)| error.clone());
        // The receiver is gone if it has not waited any longer.
        let _ = waiting.send(outcome);
    }
}

/// Sends orders to the topic "orders", each exactly once.
pub struct OrderSender {
    producer: ThreadedProducer<Deliveries>,
}

impl OrderSender {
    /// Return a sender for the brokers at an address.
    pub fn new(bootstrap: &str) -> Result<Self, KafkaError> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            .create_with_context(Deliveries)?;
        Ok(Self { producer })
    }

    /// Return when the broker has acknowledged all orders.
    pub fn send(&self, orders: &[impl AsRef<str>]) -> Result<(), KafkaError> {
        for order in orders {
            let (waiting, delivered) = sync_channel(1);
            let record = BaseRecord::<(), str, _>::with_opaque_to("orders", Box::new(waiting));
            self.producer
                .send(record.payload(order.as_ref()))
                .map_err(|(error, _)| error)?;
            delivered
                .recv()
                .expect("every record is delivered or fails")?;
        }
        Ok(())
    }
}

impl Drop for OrderSender {
    fn drop(&mut self) {
        let _ = self.producer.flush(TIMEOUT);
    }
}
