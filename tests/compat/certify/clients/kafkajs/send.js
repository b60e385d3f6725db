// Sends lines with kafkajs, one after the other. The argument: "default" or "idempotent".
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

async function main() {
  const kafka = new Kafka({
    brokers: [process.env.SEQGATE_BOOTSTRAP],
    requestTimeout: Number(process.env.SEQGATE_REQUEST_TIMEOUT_MS),
    logLevel: logLevel.ERROR,
  })
  const producer = kafka.producer({ idempotent: process.argv[2] === 'idempotent' })
  await producer.connect()
  let failures = 0
  for await (const value of readline.createInterface({ input: process.stdin })) {
    try {
      await producer.send({ topic: process.env.SEQGATE_TOPIC, messages: [{ value }] })
      console.log(value)
    } catch (error) {
      failures += 1
      if (failures <= 3) console.error(error.message)
    }
  }
  await producer.disconnect()
  process.exitCode = failures === 0 ? 0 : 1
}

main().catch((error) => {
  console.error(error.message)
  process.exit(1)
})
