import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

/** A broker in a process of its own, which fails as the test orders. */
export class Broker {
  /** Starts `seqgate serve`; the process ends with this one. */
  static async start() {
    const options = ['--listen', '127.0.0.1:0', '--test-control', '127.0.0.1:0', '--exit-with', `${process.pid}`]
    const quiet = ['--set', 'seqgate.logging.level=ERROR']
    const child = spawn('seqgate', ['serve', ...options, ...quiet], { stdio: ['ignore', 'pipe', 'inherit'] })
    const broker = new Broker(child)
    for await (const line of createInterface({ input: child.stdout })) {
      broker.control ??= line.match(/^test control on (\S+)/)?.[1]
      broker.bootstrap ??= line.match(/^seqgate ready on ([^ ,]+)/)?.[1]
      if (broker.bootstrap !== undefined) return broker
    }
    throw new Error('seqgate ended before it was ready')
  }

  constructor(child) {
    this.child = child
  }

  /** Ends the process. */
  async stop() {
    this.child.kill()
    await once(this.child, 'exit')
  }

  /** Sends a request to the test control, and returns its answer. */
  async ask(method, path, body) {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(this.control + path, { method, headers, body: JSON.stringify(body) })
    const found = await answer.json()
    assert.ok(answer.ok, `${method} ${path}: ${found.error}`)
    return found
  }

  /** Begins the test with an empty broker. */
  reset() {
    return this.ask('POST', '/reset')
  }

  /** Creates a topic with one partition. */
  createTopic(name) {
    return this.ask('POST', '/topics', { name })
  }

  /** Lets requests fail: docs/testing.md of Seqgate has the faults. Returns what says how many failed. */
  async order(fault) {
    const { id } = await this.ask('POST', '/faults', fault)
    return async () => (await this.ask('GET', `/faults/${id}`)).struck
  }

  /** Ends the broker as kill -9 does, and starts it again. */
  kill() {
    return this.ask('POST', '/restart', { after: 'kill' })
  }

  /** Fails with a sentence that names lost, doubled and reordered values. */
  async assertExactlyOnce(topic, values) {
    const { complaint } = await this.ask('POST', `/topics/${topic}/exactly-once`, { values })
    assert.equal(complaint, null, `topic ${topic}: ${complaint}`)
  }
}
