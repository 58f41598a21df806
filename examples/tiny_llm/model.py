"""A small language model of LLaMA's kind, whose blocks are made of the gallery's operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gallery.rms_norm.rms_norm import rms_norm
from gallery.rope.rope import rope, tables
from gallery.swiglu.swiglu import swiglu


@dataclass(frozen=True)
class Sizes:
    """Sets the sizes of a model.

    Attributes:
        layers: how many blocks.
        width: elements of a token between the blocks.
        heads: of the attention; each has ``width // heads`` elements.
        hidden: elements of a token within the feed-forward layers.
        context: the most tokens that a text may have.
        vocabulary: how many tokens there are; a token is a character of ASCII.
    """

    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 256
    context: int = 256
    vocabulary: int = 128


class Block(nn.Module):
    """Attention, then a gated feed-forward layer, each on normalised rows and added to them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.norm_1 = nn.Parameter(torch.ones(sizes.width))
        self.norm_2 = nn.Parameter(torch.ones(sizes.width))
        self.query_key_value = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.attended = nn.Linear(sizes.width, sizes.width, bias=False)
        self.gate_and_value = nn.Linear(sizes.width, 2 * sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def project(self, x: Tensor, positions: Tensor, angles: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Give the queries, keys and values of tokens, (…, heads, width // heads) each.

        Args:
            x: (…, width).
            positions: of the tokens, (…).
            angles: cosines and sines for each position.
        """
        rows = self.query_key_value(rms_norm(x, self.norm_1)).unflatten(-1, (3, self.heads, -1))
        query, key, value = rows.unbind(-3)
        return [rope(query, positions, *angles), rope(key, positions, *angles), value]

    def add(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add what the tokens attended to, (…, heads, width // heads), and feed it forward."""
        x = x + self.attended(attended.flatten(-2))
        return x + self.down(swiglu(self.gate_and_value(rms_norm(x, self.norm_2))))


class Head(nn.Module):
    """Compares tokens, (…, width), with each of the vocabulary: logits."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.norm = nn.Parameter(torch.ones(embedding.embedding_dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, vocabulary)."""
        return nn.functional.linear(rms_norm(x, self.norm), self.embedding.weight)


class TinyLlm(nn.Module):
    """Gives how likely each token is to come next."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = Head(self.embedding)
        cos, sin = tables(sizes.context, sizes.width // sizes.heads // 2)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look at whole texts, for training.

        Args:
            tokens: (batch, length), of at most ``context`` tokens.

        Returns:
            Logits of the next token after each, (batch, length, vocabulary).
        """
        positions = torch.arange(tokens.shape[1]).repeat(tokens.shape[0], 1)
        x = self.embedding(tokens)
        for block in self.blocks:
            projected = block.project(x, positions, (self.cos, self.sin))
            query, key, value = (one.transpose(1, 2) for one in projected)
            attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = block.add(x, attended.transpose(1, 2))
        return self.head(x)


class Step(nn.Module):
    """Takes one token further, with the keys and values of those before: what is exported.

    Args:
        model: a trained model.
    """

    def __init__(self, model: TinyLlm) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give the likeliest next token.

        Args:
            token: the last one, int64 (1,).
            position: its place in the text, int64 (1,).
            keys: of all layers and places, (layers, context, heads, width // heads).
            values: the same.

        Returns:
            The next token, and keys and values with those of this place.
        """
        model = self.model
        x = model.embedding(token)
        places = torch.arange(model.sizes.context)
        here = (places == position).reshape(-1, 1, 1)
        every_key, every_value = [], []
        for number, block in enumerate(model.blocks):
            query, key, value = block.project(x, position, (model.cos, model.sin))
            key = torch.where(here, key, keys[number])
            value = torch.where(here, value, values[number])
            # (heads, 1, context): how much each head attends to each place so far.
            scores = query.transpose(0, 1) @ key.permute(1, 2, 0) * key.shape[2] ** -0.5
            shares = scores.masked_fill(places > position, float("-inf")).softmax(-1)
            x = block.add(x, (shares @ value.transpose(0, 1)).transpose(0, 1))
            every_key.append(key)
            every_value.append(value)
        return model.head(x).argmax(-1), torch.stack(every_key), torch.stack(every_value)

    def start(self) -> tuple[Tensor, Tensor]:
        """Give the keys and values of a text that has not begun."""
        sizes = self.model.sizes
        shape = (sizes.layers, sizes.context, sizes.heads, sizes.width // sizes.heads)
        return torch.zeros(shape), torch.zeros(shape)


def generate(
    step: Callable[..., Sequence[Tensor]], state: Sequence[Tensor], prompt: str, count: int
) -> str:
    """Continue a text.

    Args:
        step: a `Step`, or what it was exported to.
        state: its keys and values at the start.
        prompt: how the text begins, at least one character.
        count: how many characters to add.

    Returns:
        What was added.
    """
    added: list[int] = []
    for place in range(len(prompt) + count - 1):
        last = ord(prompt[place]) if place < len(prompt) else added[-1]
        following, *state = step(torch.tensor([last]), torch.tensor([place]), *state)
        if place >= len(prompt) - 1:
            added.append(int(following))
    return "".join(map(chr, added))


def train(model: TinyLlm, text: str, steps: int, seed: int = 0) -> list[float]:
    """Train on pieces of a text.

    Returns:
        The loss of every step, in nats for each character.
    """
    tokens = torch.frombuffer(bytearray(text.encode("ascii", "replace")), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=max(steps, 2))
    length, losses = min(128, model.sizes.context), []
    for _ in range(steps):
        starts = torch.randint(len(tokens) - length - 1, (16,), generator=generator)
        pieces = torch.stack([tokens[start : start + length + 1] for start in starts])
        logits = model(pieces[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return losses
