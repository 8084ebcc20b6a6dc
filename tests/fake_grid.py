"""A Flower Grid in this process: shuffled, lossy, and repeating if told to."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# Set by the process that Flower starts; without them no message can be made.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


class FakeGrid(Grid):
    """Nodes are ClientApps that answer when their replies are pulled.

    tamper : called with (node, number of the push, message, answer), where answer() runs
        the app; gives the replies that come, and may keep some back in `delayed`
    """

    def __init__(self, apps: dict[int, tuple], seed: int = 0):
        self.apps = apps  # node id -> (ClientApp, node_config)
        self.random = random.Random(seed)
        self.tamper: Callable | None = None
        self.waiting: dict[str, list[Message]] = {}
        self.n_pushes = 0
        self._ids = count(1)
        self._contexts: dict[int, Context] = {}

    def set_run(self, run):
        """Nothing to know."""

    @property
    def run(self):
        """There is no SuperLink."""
        return None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        nodes = list(self.apps)
        self.random.shuffle(nodes)
        return nodes

    def execute(self, node: int, message: Message) -> Message:
        app, config = self.apps[node]
        context = Context(1, node, config, RecordDict(), {})
        try:
            return app(message, context)
        except Exception as error:
            return Message(
                Error(2, f"{type(error).__name__}: {error}"), reply_to=message
            )

    def push_messages(self, messages):
        ids = []
        self.n_pushes += 1
        for message in messages:
            name = f"m{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            node = message.metadata.dst_node_id

            def answer(node=node, message=message):
                return self.execute(node, message)

            if node not in self.apps:
                replies = [Message(Error(5, "Node Unavailable"), reply_to=message)]
            elif self.tamper is None:
                replies = [answer()]
            else:
                replies = self.tamper(node, self.n_pushes, message, answer)
            self.waiting[name] = replies
        return ids

    def pull_messages(self, message_ids):
        found = []
        for name in message_ids:
            found += self.waiting.pop(name, [])
        self.random.shuffle(found)
        return found

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
