"""The ClientApp: it trains on the rows of one client, and evaluates on others of its rows."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from digits_app.task import Net, load_data, test, train

app = ClientApp()
criterion = nn.CrossEntropyLoss()


def received(message):
    """The model that the server sent."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net


def loaders(context):
    """The rows of this client."""
    node = context.node_config
    batch = context.run_config["batch-size"]
    return load_data(node["partition-id"], node["num-partitions"], batch)


@app.train()
def on_train(message, context):
    """Train the model that was received, and send it back."""
    net, (rows, _) = received(message), loaders(context)
    lr = message.content["config"]["lr"]
    metrics = {"num-examples": len(rows.dataset)}
    metrics["train_loss"] = train(net, rows, context.run_config["local-epochs"], lr, criterion)
    sent = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(sent), reply_to=message)


@app.evaluate()
def on_evaluate(message, context):
    """Evaluate the model that was received."""
    net, (_, rows) = received(message), loaders(context)
    loss, accuracy = test(net, rows)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(rows.dataset)}
    sent = {"metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(sent), reply_to=message)
