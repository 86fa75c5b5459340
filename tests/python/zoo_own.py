"""Small models of many kinds, written here: name -> (model, batch, loss, modules that are layers)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

SAMPLES = 8


def _normal(*sizes):
    return torch.randn(SAMPLES, *sizes, dtype=torch.float64)


def _classes(count, *sizes):
    return torch.randint(0, count, (SAMPLES, *sizes))


class Residual(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return x + self.inside(x)


class Sequence(nn.Module):
    """What comes first, layers, and a head."""

    def __init__(self, first, layers, head):
        super().__init__()
        self.first, self.layers, self.head = first, nn.ModuleList(layers), head

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Pooled(nn.Module):
    """The mean over the places of an image, or of a sequence of channels; then a projection."""

    def __init__(self, channels, out):
        super().__init__()
        self.out = nn.Linear(channels, out)

    def forward(self, x):
        return self.out(x.flatten(2).mean(2))


def classified(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def regressed(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def resnet(norm):
    conv = lambda: nn.Conv2d(8, 8, 3, padding=1, bias=False)
    block = lambda: Residual(nn.Sequential(conv(), norm(8), nn.ReLU(), conv(), norm(8)))
    return (Sequence(nn.Conv2d(3, 8, 3, stride=2, padding=1), [block() for _ in range(4)], Pooled(8, 5)), (_normal(3, 8, 8), _classes(5)),
            classified)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU())
        self.layers = nn.ModuleList([conv(2, 4), conv(4, 8), conv(8, 8), conv(16, 4), conv(8, 2)])

    def forward(self, x):
        first = self.layers[0](x)
        second = self.layers[1](F.max_pool2d(first, 2))
        deep = self.layers[2](F.avg_pool2d(second, 2))
        up = self.layers[3](torch.cat([F.interpolate(deep, scale_factor=2, mode="nearest"), second], 1))
        return self.layers[4](torch.cat([F.interpolate(up, scale_factor=2, mode="bilinear", align_corners=False), first], 1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList([kind(6, 8, batch_first=True), kind(8, 8, batch_first=True), kind(8, 8, num_layers=2, batch_first=True),
                                     kind(8, 4, batch_first=True, bidirectional=True)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(x[:, -1])


class TwoTowers(nn.Module):
    """CLIP's loss: every sample of the slice against every other."""

    def __init__(self):
        super().__init__()
        tower = lambda width: nn.ModuleList([nn.Linear(width, 8), nn.Linear(8, 8)])
        self.image, self.text = tower(6), tower(4)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, image, text):
        for layer in self.image:
            image = torch.tanh(layer(image))
        for layer in self.text:
            text = torch.tanh(layer(text))
        scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).t() * self.scale.exp()
        wanted = torch.arange(scores.shape[0])
        return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.t(), wanted)) / 2


class Mixer(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.across, self.along = nn.Linear(patches, patches), nn.Linear(width, width)

    def forward(self, x):
        x = x + F.gelu(self.across(self.norms[0](x).transpose(1, 2))).transpose(1, 2)
        return x + F.gelu(self.along(self.norms[1](x)))


class Causal1d(nn.Module):
    """A convolution that sees the past only."""

    def __init__(self, channels, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(channels, channels, 3, dilation=dilation))

    def forward(self, x):
        return x + F.relu(self.conv(F.pad(x, (2 * self.dilation, 0))))


def discriminated(model, batch):
    """A discriminator's: what is real, and what is not."""
    return F.binary_cross_entropy_with_logits(model(batch[0]), torch.ones(batch[0].shape[0], 1, dtype=batch[0].dtype)) + F.softplus(
        model(batch[1])).mean()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, stride=2, padding=1),
                                     nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1), nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), 0.2)
        return torch.sigmoid(self.layers[-1](x))


class Recommender(nn.Module):
    """Bags of items, numbers of the user, their products, a click or none."""

    def __init__(self):
        super().__init__()
        self.items, self.place = nn.EmbeddingBag(20, 8, mode="mean"), nn.Embedding(7, 8)
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8 + 3, 16), nn.Linear(16, 8), nn.Linear(8, 1)])

    def forward(self, bag, place, numbers):
        parts = [self.items(bag), self.place(place), self.layers[0](numbers)]
        products = torch.stack([(a * b).sum(1) for i, a in enumerate(parts) for b in parts[:i]], 1)
        x = torch.cat([parts[2], products], 1)
        for layer in self.layers[1:]:
            x = layer(F.relu(x))
        return torch.sigmoid(x).squeeze(1)


class GraphLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x, adjacency):
        mean = adjacency @ x / adjacency.sum(-1, keepdim=True).clamp(min=1)
        return F.relu(self.own(x) + self.others(mean))


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(GraphLayer(6) for _ in range(4)), nn.Linear(6, 3)

    def forward(self, x, adjacency):
        for layer in self.layers:
            x = layer(x, adjacency)
        return self.head(x.amax(1))


class StateSpace(nn.Module):
    """A selective scan, a step at a time, as Mamba's is defined."""

    def __init__(self, width=6, state=4):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select, self.decay = nn.Linear(width, 2 * state + width), nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.out, self.state = nn.Linear(width, width), state

    def forward(self, x):
        u = F.silu(self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        b, c, dt = self.select(u).split([self.state, self.state, u.shape[2]], -1)
        dt = F.softplus(dt)
        h, results = torch.zeros(x.shape[0], x.shape[2], self.state, dtype=x.dtype), []
        for t in range(x.shape[1]):
            h = h * torch.exp(-dt[:, t, :, None] * self.decay.exp()) + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            results.append((h * c[:, t, None]).sum(-1))
        return x + self.out(torch.stack(results, 1))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)])

    def embed(self, x):
        for layer in self.layers:
            x = F.selu(layer(x))
        return x

    def forward(self, one, other, wanted):
        return F.cosine_embedding_loss(self.embed(one), self.embed(other), wanted)


class Tied(nn.Module):
    """Embedding and head are one weight, and the first layer is the last one too."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(11, 8))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), *(nn.Linear(8, 8) for _ in range(3))])

    def forward(self, tokens):
        x = F.embedding(tokens, self.table)
        for layer in self.layers:
            x = layer(x)
        return self.layers[0](x) @ self.table.t()


class Labelled(nn.Module):
    """A pixel at a time, with a class token that every sample shares."""

    def __init__(self):
        super().__init__()
        self.token, self.patch = nn.Parameter(torch.zeros(1, 1, 8)), nn.Linear(12, 8)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
                                    for _ in range(4))
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        patches = F.unfold(image, 2, stride=2).transpose(1, 2)
        x = torch.cat([self.token.expand(image.shape[0], -1, -1), self.patch(patches)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


class Spectral(nn.Module):
    """A Fourier layer: real numbers outside of every layer."""

    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(3, 4, 4, 2) / 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.fft.rfft(x, dim=1)[:, :3]
        y = torch.einsum("bki,kio->bko", y, torch.view_as_complex(self.weight))
        return x + F.gelu(self.out(torch.fft.irfft(y, n=x.shape[1], dim=1)))


class Checkpointed(nn.Module):
    """Recomputes its activations itself."""

    def __init__(self, width=8):
        super().__init__()
        self.inside = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + checkpoint(self.inside, x, use_reentrant=False)


class Reversed(torch.autograd.Function):
    """The identity, whose gradient is negative."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -0.3 * gradient


class Adversarial(nn.Module):
    """Classes, and domains that the layers should not tell apart; one of them is frozen."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.classes, self.domains = nn.Linear(6, 5), nn.Linear(6, 2)
        self.layers[1].requires_grad_(False)

    def forward(self, x, wanted, domain):
        for layer in self.layers:
            x = torch.where(x > 0, layer(x), x)
        return F.cross_entropy(self.classes(x), wanted, label_smoothing=0.1) + F.cross_entropy(self.domains(Reversed.apply(x)), domain)


class Codebook(nn.Module):
    """The nearest of some codes stands for every sample; its gradient goes past it. Steps are counted in a buffer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(8, 6)])
        self.register_buffer("codes", torch.randn(7, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x, wanted):
        z = self.layers[1](F.relu(self.layers[0](x)))
        code = self.codes[torch.cdist(z, self.codes).argmin(-1)]
        self.steps += 1
        y = self.layers[3](F.relu(self.layers[2](z + (code - z).detach())))
        return F.mse_loss(y, wanted) + 0.25 * F.mse_loss(z, code)


def models():
    """Each a function, so that only what is used is made."""
    mlp = lambda *widths: [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, widths[1:])]
    split = lambda model, batch: classified(model, batch)
    return {
        "resnet-groupnorm": lambda: resnet(lambda c: nn.GroupNorm(2, c)),
        "resnet-batchnorm": lambda: resnet(nn.BatchNorm2d),
        "unet": lambda: (UNet(), (_normal(2, 8, 8), _normal(2, 8, 8)), regressed),
        "lstm": lambda: (Recurrent(nn.LSTM), (_normal(5, 6), _classes(3)), classified),
        "gru": lambda: (Recurrent(nn.GRU), (_normal(5, 6), _classes(3)), classified),
        "two-towers": lambda: (TwoTowers(), (_normal(6), _normal(4)), lambda model, batch: model(*batch)),
        "mlp-mixer": lambda: (Sequence(nn.Linear(6, 8), [Mixer(5, 8) for _ in range(4)], nn.Sequential(nn.Flatten(), nn.Linear(40, 3))),
                              (_normal(5, 6), _classes(3)), split),
        "tcn": lambda: (Sequence(nn.Conv1d(3, 6, 1), [Causal1d(6, 2**i) for i in range(4)], Pooled(6, 3)), (_normal(3, 12), _classes(3)), split),
        "discriminator": lambda: (Sequence(nn.Identity(), mlp(6, 8, 8, 8, 4), nn.Linear(4, 1)), (_normal(6), _normal(6)), discriminated),
        "autoencoder": lambda: (Autoencoder(), (torch.rand(SAMPLES, 2, 8, 8, dtype=torch.float64),) * 2, regressed),
        "recommender": lambda: (Recommender(), (_classes(20, 5), _classes(7), _normal(4), _classes(2).double()),
                                lambda model, batch: F.binary_cross_entropy(model(*batch[:3]), batch[3])),
        "graph-network": lambda: (GraphNetwork(), (_normal(5, 6), _classes(2, 5, 5).double(), _classes(3)),
                                  lambda model, batch: F.cross_entropy(model(*batch[:2]), batch[2])),
        "state-space": lambda: (Sequence(nn.Linear(3, 6), [StateSpace() for _ in range(4)], nn.Linear(6, 2)), (_normal(7, 3), _normal(7, 2)),
                                lambda model, batch: F.smooth_l1_loss(model(batch[0]), batch[1])),
        "siamese": lambda: (Siamese(), (_normal(6), _normal(6), _classes(2).double() * 2 - 1), lambda model, batch: model(*batch)),
        "tied-weights": lambda: (Tied(), (_classes(11, 6), _classes(11, 6)),
                                 lambda model, batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())),
        "class-token": lambda: (Labelled(), (_normal(3, 4, 4), _classes(5)), classified),
        "fourier": lambda: (Sequence(nn.Linear(2, 4), [Spectral() for _ in range(4)], nn.Linear(4, 2)), (_normal(8, 2), _normal(8, 2)),
                            lambda model, batch: F.huber_loss(model(batch[0]), batch[1])),
        "ranking": lambda: (Sequence(nn.Identity(), mlp(6, 8, 8, 8, 4), nn.Linear(4, 1)), (_normal(6), _normal(6)),
                            lambda model, batch: F.soft_margin_loss(model(batch[0]) - model(batch[1]), torch.ones(batch[0].shape[0], 1).double())),
        "checkpointed": lambda: (Sequence(nn.Linear(6, 8), [Checkpointed() for _ in range(4)], nn.Linear(8, 5)), (_normal(6), _classes(5)), split),
        "adversarial": lambda: (Adversarial(), (_normal(6), _classes(5), _classes(2)), lambda model, batch: model(*batch)),
        "codebook": lambda: (Codebook(), (_normal(6), _normal(6)), lambda model, batch: model(*batch)),
    }
