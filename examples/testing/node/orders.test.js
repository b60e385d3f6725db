import assert from 'node:assert/strict'
import { after, afterEach, before, beforeEach, test } from 'node:test'
import { OrderSender } from './orders.js'
import { Broker } from './seqgate.js'

let broker
let sender

before(async () => {
  broker = await Broker.start()
})
after(() => broker.stop())

beforeEach(async () => {
  await broker.reset()
  await broker.createTopic('orders')
  sender = await OrderSender.connect(broker.bootstrap)
})
afterEach(() => sender.close())

test('lost answers double no order', async () => {
  const struck = await broker.order({ fault: 'drop_answer', api: 'Produce', times: 2 })
  await sender.send('one', 'two', 'three')
  assert.equal(await struck(), 2)
  await broker.assertExactlyOnce('orders', ['one', 'two', 'three'])
})

test('orders survive a killed broker', async () => {
  const sent = []
  for (let number = 0; number < 30; number += 1) {
    if (number === 10 || number === 20) await broker.kill()
    sent.push(`order ${number}`)
    await sender.send(`order ${number}`)
  }
  await broker.assertExactlyOnce('orders', sent)
})

test('orders survive random faults', async () => {
  const struck = await broker.order({ fault: 'script', seed: 1, api: 'Produce', rate: 0.5, times: 10 })
  const sent = Array.from({ length: 30 }, (_, number) => `order ${number}`)
  await sender.send(...sent)
  assert.notEqual(await struck(), 0)
  await broker.assertExactlyOnce('orders', sent)
})
