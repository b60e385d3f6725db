"""The test suites of client libraries, run as they are against one gateway and against three."""
