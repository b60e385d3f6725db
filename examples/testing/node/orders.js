import { Kafka, logLevel } from 'kafkajs'

/** Sends orders to the topic "orders", each exactly once. */
export class OrderSender {
  /** Connects to the brokers at an address. */
  static async connect(bootstrap) {
    const kafka = new Kafka({
      clientId: 'orders',
      brokers: [bootstrap],
      logLevel: logLevel.NOTHING,
      retry: { initialRetryTime: 50, maxRetryTime: 500 },
    })
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    return new OrderSender(producer)
  }

  constructor(producer) {
    this.producer = producer
  }

  /** Returns when the broker has acknowledged all orders. */
  async send(...orders) {
    for (const value of orders) {
      await this.producer.send({ topic: 'orders', acks: -1, messages: [{ value }] })
    }
  }

  /** Ends the connections. */
  async close() {
    await this.producer.disconnect()
  }
}
