"""One step of an optimizer for one parameter: a kernel that reads each element of the parameter, its gradient and its state
once and gives them anew. Optimizers write the results over the operands (`out=`), which elementwise loops allow.

Numbers that are differences of given ones (1 - beta) come computed in double precision.
"""
from .declare import RUN, none, rows, scalar
from .layouts import per_row
from .pointwise import maximum, sqrt
from .reductions import sum
from .samples import call, t

WIDE = ("float32", "float64")
DECAY = ({}, {"decay": RUN})        # without decay no kernel multiplies by it
P, V = t(3, 5), t(3, 5, low=0.1)


@rows("_square_sum(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", layout=per_row(), domain=WIDE, derivative=none,
      method=False, function=False, cost=2, samples=(call(t(3, 5)), call(t(3, 5), 1), call(t(40, 33), 0, True)))
def square_sum(x, dim, keepdim):
    """Of a gradient: its part of the norm of all."""
    return sum(x * x, dim, True)


def decayed(g, p, decay):
    """The gradient with the penalty on the parameter's size in it."""
    return g if isinstance(decay, float) and decay == 0 else g + p * decay


def moments(g, m, v, weight1, beta2, weight2):
    return m + (g - m) * weight1, v * beta2 + g * g * weight2


@scalar("_adam_step(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, float step_size, float weight1, float beta2,"
        " float weight2, float root, float eps, float shrink, float decay=0.0) -> (Tensor, Tensor, Tensor)", domain=WIDE,
        variants=DECAY, derivative=none, method=False, function=False, cost=10,
        samples=(call(P, P, P, V, 0.1, 0.1, 0.99, 0.01, 0.5, 1e-8, 0.9), call(P, P, P, V, 0.1, 0.1, 0.99, 0.01, 0.5, 1e-8, 1.0, 0.2)))
def adam_step(p, g, m, v, step_size, weight1, beta2, weight2, root, eps, shrink, decay):
    """`step_size` lr / (1 - beta1^t); `root` sqrt(1 - beta2^t); `shrink` 1 - lr decay where decay is decoupled, else 1."""
    p = p * shrink
    m, v = moments(decayed(g, p, decay), m, v, weight1, beta2, weight2)
    return p - step_size * (m / (sqrt(v) / root + eps)), m, v


@scalar("_amsgrad_step(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, Tensor max_exp_avg_sq, float step_size,"
        " float weight1, float beta2, float weight2, float root, float eps, float shrink, float decay=0.0)"
        " -> (Tensor, Tensor, Tensor, Tensor)", domain=WIDE, variants=DECAY, derivative=none, method=False, function=False, cost=10,
        samples=(call(P, P, P, V, V, 0.1, 0.1, 0.99, 0.01, 0.5, 1e-8, 1.0, 0.2),))
def amsgrad_step(p, g, m, v, largest, step_size, weight1, beta2, weight2, root, eps, shrink, decay):
    """Adam by the largest second moment so far (Reddi et al., 2018)."""
    p = p * shrink
    m, v = moments(decayed(g, p, decay), m, v, weight1, beta2, weight2)
    largest = maximum(largest, v)
    return p - step_size * (m / (sqrt(largest) / root + eps)), m, v, largest


@scalar("_sgd_step(Tensor param, Tensor grad, float lr, float decay=0.0) -> Tensor", domain=WIDE, variants=DECAY, derivative=none,
        method=False, function=False, cost=2, samples=(call(P, P, 0.1), call(P, P, 0.1, 0.2)))
def sgd_step(p, g, lr, decay):
    return p - lr * decayed(g, p, decay)


@scalar("_momentum_step(Tensor param, Tensor grad, Tensor momentum_buffer, float lr, float momentum, float undamped,"
        " float decay=0.0, *, bool nesterov=False) -> (Tensor, Tensor)", domain=WIDE,
        variants=({}, {"decay": RUN}, {"nesterov": True}, {"decay": RUN, "nesterov": True}), derivative=none, method=False,
        function=False, cost=3, samples=(call(P, P, P, 0.1, 0.9, 1.0), call(P, P, P, 0.1, 0.9, 0.5, 0.2),
                                         call(P, P, P, 0.1, 0.9, 1.0, 0.2, nesterov=True)))
def momentum_step(p, g, buffer, lr, momentum, undamped, decay, nesterov):
    g = decayed(g, p, decay)
    buffer = buffer * momentum + g * undamped
    return p - lr * (g + buffer * momentum if nesterov else buffer), buffer
