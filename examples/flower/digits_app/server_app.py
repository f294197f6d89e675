"""The ServerApp: it averages the models of the clients with FedAvg, and saves the result."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import Net, load_server_data, test

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for as many rounds as pyproject.toml says."""
    settings = context.run_config
    torch.manual_seed(settings["seed"])
    strategy = FedAvg(fraction_evaluate=settings["fraction-evaluate"])
    result = strategy.start(
        grid,
        ArrayRecord(Net().state_dict()),
        num_rounds=settings["num-server-rounds"],
        train_config=ConfigRecord({"lr": settings["learning-rate"]}),
        evaluate_fn=on_server_rows,
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")


def on_server_rows(_, arrays):
    """Evaluate a model on the rows of the server."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(net, load_server_data())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
