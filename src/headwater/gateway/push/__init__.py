"""Records that go to their receivers by themselves: webhooks, server-sent events, WebSockets."""
