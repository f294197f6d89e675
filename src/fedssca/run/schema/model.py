"""The section `[model]` of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Tag, model_validator
from pydantic.dataclasses import dataclass

from fedssca.run.schema.types import (
    MODEL,
    Flag,
    FunctionName,
    NamesOrNumber,
    TextOrTexts,
    Whole,
    WholeOrWholes,
    Widths,
    invalid,
    key,
    named_or_own,
)

__all__ = ["ModelSettings"]

Activation: TypeAlias = Literal["relu", "sigmoid", "swish", "tanh"]

ModelName: TypeAlias = Annotated[
    Annotated[Literal["mlp", "cnn", "linear"], Tag("<known>")]
    | Annotated[FunctionName, Tag("<own>")],
    Discriminator(named_or_own),
]


@dataclass(frozen=True, config=MODEL)
class ModelSettings:
    """The network that is trained, see [models](models.md)."""

    name: ModelName = key(
        "The network: dense layers (mlp), convolutions for images (cnn), softmax regression "
        "(linear), or a function of yours in an installed package, package.module:function.",
        title="Network",
        default="mlp",
        basic=True,
    )
    hidden: WholeOrWholes = key(
        "The numbers of hidden units of each dense layer, such as [64, 32]. With mlp a single "
        "number is the network of the paper, one hidden layer, without biases for classes. If "
        "parties have bottoms, these are the layers of the head.",
        title="Hidden units",
        default=128,
        basic=True,
    )
    activation: Activation = key(
        "The activation function of mlp and cnn.", title="Activation function", default="swish"
    )
    biases: Flag | None = key(
        "Whether layers have biases.",
        default=None,
        unset="true, but false for the network of the paper if it predicts classes",
    )
    layer_norm: Flag = key(
        "A LayerNorm stands before the activation of every dense layer.",
        title="Layer normalisation",
        default=False,
    )
    bottom: Widths = key(
        "The dense layers of the network that each party has for its own columns, such as [16, 8]; "
        "a list of lists gives each party its own. The last of these layers is linear. Without "
        "it the first layer of mlp is divided among the parties.",
        title="Layers of each party",
        default=[],
    )
    join: Literal["sum", "concatenate"] | None = key(
        "How the head joins what the bottoms of the parties give.",
        title="How the parts are joined",
        default=None,
        unset="sum, but concatenate for a cnn without bottom",
    )
    parties: NamesOrNumber | None = key(
        "The columns of each bottom where clients hold rows: a list of names for each, or a number "
        "of equal parts in order. It gives clients with rows the network that parties with columns "
        "have.",
        title="Columns of each part",
        default=None,
        unset="one bottom with all columns",
    )
    embed: Whole | None = key(
        "A column with more categories than this is embedded: each of its categories becomes a "
        "vector of this many numbers, which is trained with the network mlp. Parties "
        "with columns embed their own categories.",
        title="Embed columns with more categories than",
        default=None,
        unset="each category is a column of its own",
        ge=1,
    )
    image: list[Whole] = key(
        "The shape of the images of cnn: [height, width] or [height, width, channels]. Without it "
        "images are square and have one channel.",
        title="Image shape",
        default=[],
    )
    channels: list[Whole] = key(
        "The number of kernels of each convolution of cnn.",
        title="Convolution channels",
        default=[16, 32],
    )
    kernel: Whole = key("The side of the kernels of cnn.", title="Kernel size", default=3, ge=1)
    pool: Whole = key(
        "The side of the squares over which cnn pools after each convolution; 1 means no pooling.",
        title="Pooling size",
        default=2,
        ge=1,
    )
    pooling: Literal["max", "mean"] = key("What pooling takes of a square.", default="max")
    start: str = key(
        "The directory of a finished run with the same network, whose model is where training "
        "begins. In a deployment it is a folder at the server.",
        title="Start from a finished run",
        default="",
    )
    train: TextOrTexts | None = key(
        "The parts of the network that are trained, such as head, or [layer2, head]; all others "
        "stay as they are at the start. An unknown name is refused with a list of all parts.",
        title="Parts that are trained",
        default=None,
        unset="all parts",
    )
    personal: TextOrTexts | None = key(
        "The parts of the network that stay at each client, such as head: trained there with steps "
        "of algorithm.rate, and in no message. It is for clients that hold rows.",
        title="Parts that stay at clients",
        default=None,
        unset="none",
    )
    options: dict[str, Any] | None = key(
        "What your own function takes beside the numbers of features and outputs and the seed.",
        title="Options of your function",
        default=None,
    )

    @model_validator(mode="after")
    def _keys_of_the_network(self) -> ModelSettings:
        """Keys that the named network does not have must be left out."""
        if self.own:
            for name in ("bottom", "parties", "layer_norm", "biases", "image", "embed"):
                if getattr(self, name) not in (None, False, []):
                    raise invalid("your own function takes model.options only", name)
        elif self.options is not None:
            raise invalid("options are for a function of yours in model.name", "options")
        if self.name == "linear":
            for name in ("bottom", "parties", "layer_norm", "biases", "embed"):
                if getattr(self, name) not in (None, False, []):
                    words = f'name = "linear" has no {name}: use "mlp", or leave {name} out'
                    raise invalid(words, name, getattr(self, name))
        if self.name == "mlp" and self.parties is not None and not self.bottom:
            raise invalid(
                "mlp has networks of parties only with a bottom: set bottom, such as [16, 8]",
                "parties",
            )
        if self.embed is not None and (self.name == "cnn" or self.bottom):
            words = 'only name = "mlp" without bottom has embeddings: leave embed or bottom out'
            raise invalid(words, "embed", self.embed)
        if self.name == "mlp" and self.image:
            raise invalid('images belong to name = "cnn": set it, or leave image out', "image")
        if self.hidden == [] and self.name == "mlp" and not self.bottom:
            words = 'without a hidden layer it is linear: set model.name = "linear"'
            raise invalid(words, "hidden", [])
        if self.join is not None and not self.joins:
            words = "only networks with a bottom for each party are joined: set bottom, or leave "
            raise invalid(words + "join out", "join", self.join)
        return self

    @property
    def trained(self) -> list[str]:
        """The names of the parts that are trained; empty means all."""
        return _listed(self.train)

    @property
    def own_parts(self) -> list[str]:
        """The names of the parts that stay at each client; empty means none."""
        return _listed(self.personal)

    @property
    def own(self) -> bool:
        """Whether the name is that of a function of the user."""
        return ":" in self.name

    @property
    def joins(self) -> bool:
        """Whether the network has bottoms that a head joins."""
        return self.name == "cnn" or bool(self.bottom) or self.embed is not None


def _listed(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])
