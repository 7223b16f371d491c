// Recording. Takes calls that just ran; gives their outputs a grad_fn that keeps exactly what the
// derivative reads.
// Invariant: see tape.h; after a write through a view the base's grad_fn knows of it, and older
// views follow their base.
#include "tape.h"

#include "dtype.h"
#include "program.h"

namespace core {
namespace {

bool needed(const Call& call, int i) { return call.needs[i / 64] >> (i % 64) & 1; }

void set_out(Node* n, int i, Layout* l) {
  rl::incref(l);
  n->outs[i] = l;
}

// The node of a call: edges, saved operands and parameters. `written`: the operand that an in-place
// call will overwrite; where the derivative reads it, a copy is kept, at the same place in the
// graph.
Own<Node> build(Call& call, Backward* b, int nouts, Tensor* written) {
  int nsaved = static_cast<int>(b->operands.size() + b->outs.size());
  Own<Node> n(node_new(
      NodeKind::Operator, call.tensors.size(), nsaved, static_cast<int>(b->params.size()), nouts));
  n->op = call.op;
  n->backward = b;
  b->refs++;
  for (int i = 0; i < call.tensors.size(); i++)
    if (needed(call, i)) n->edges[i] = gradient_edge(call.tensors[i]);
  Saved* s = n->saved;
  for (int i : b->operands) {
    Tensor* t = call.tensors[i];
    Own<Tensor> copy;
    if (t == written) {
      copy = dense_copy(t);
      if (Node* maker = current_grad_fn(t)) attach(copy.get(), maker, t->output);
      t = copy.get();
    }
    save_operand(*s++, t, version_of(t));
  }
  for (size_t i = 0; i < b->params.size(); i++) n->params[i] = Py_NewRef(call.values[b->params[i]]);
  n->had_saved = nsaved > 0;
  return n;
}

// The rest of it, once the outputs are there.
void save_outs(Node* n, Tensor* const* outs) {
  if (n->backward) {
    Saved* s = n->saved + n->backward->operands.size();
    for (int i : n->backward->outs) save_memory(*s++, outs[i], version_of(outs[i]), i);
  }
  for (int i = 0; i < n->nouts; i++) set_out(n, i, outs[i]->layout);
}

bool is_operand(const Call& call, const Tensor* t) {
  for (int i = 0; i < call.tensors.size(); i++)
    if (call.tensors[i] == t) return true;
  return false;
}

}  // namespace

Node* current_grad_fn(Tensor* t) {
  Tensor* base = t->base;
  if (!base || t->no_grad_view || !base->requires_grad) return t->grad_fn;
  if (t->grad_fn && t->base_version == version_of(t)) return t->grad_fn;
  Own<Node> n(node_new(NodeKind::ViewOf, 1, 0, 0, 1));
  n->edges[0] = gradient_edge(base);
  set_out(n.get(), 0, t->layout);
  NodeExtra* e = node_extra(n.get());
  rl::incref(e->base = base->layout);
  rl::incref(e->view = t->layout);
  e->offset = t->offset - offset_in(t->layout->dtype, base);
  attach(t, n.get(), 0);
  return t->grad_fn;
}

Edge gradient_edge(Tensor* t) {
  if (Node* n = current_grad_fn(t)) return edge_to(n, t->output);
  if (!needs_grad(t)) return Edge{nullptr, 0};
  TensorExtra* e = extra_of(t);
  if (e->accumulator) return edge_to(e->accumulator, 0);
  Node* n = node_new(NodeKind::Accumulate, 0, 0, 0, 1);
  set_out(n, 0, t->layout);
  n->variable = t;
  Py_INCREF(py(t));
  e->accumulator = n;
  return Edge{n, 0};
}

// Called with each node that becomes the grad_fn of a tensor (anomaly detection), or null; owned.
static PyObject* node_watcher = nullptr;

void attach(Tensor* t, Node* n, uint32_t output) {
  if (node_watcher) Py_DECREF(check(PyObject_CallOneArg(node_watcher, py(n))));
  Node* old = t->grad_fn;
  t->grad_fn = node_of(Py_NewRef(py(n)));
  t->output = output;
  t->requires_grad = true;
  facts_changed(t);
  if (t->base) t->base_version = version_of(t);
  track(t);
  if (t->extra) Py_CLEAR(t->extra->hooks);  // they stay with the node they were registered on
  if (t->retains_grad) {
    t->retains_grad = false;
    tensor_retain_grad(t);
  }
  if (old) drop_later(py(old));
}

void rebase(Tensor* written, Node* n, uint32_t output) {
  Tensor* base = written->base;
  if (!base || written->no_grad_view) return attach(written, n, output);
  // The base is what was written, through a window; `n` becomes the derivative inside that window.
  Own<Node> w(node_new(NodeKind::WriteView, static_cast<int>(n->nedges) + 1, 0, 0, 1));
  w->edges[0] = gradient_edge(base);
  for (uint32_t i = 0; i < n->nedges; i++) {
    Edge e = n->edges[i];
    bool window = e.node && e.node == written->grad_fn && e.output == written->output;
    if (e.node && !window) w->edges[i + 1] = edge_to(e.node, e.output);
  }
  set_out(w.get(), 0, base->layout);
  NodeExtra* e = node_extra(w.get());
  e->inner = node_of(Py_NewRef(py(n)));
  rl::incref(e->base = base->layout);
  rl::incref(e->view = written->layout);
  e->offset = written->offset - offset_in(written->layout->dtype, base);
  w->had_saved = n->had_saved;
  attach(base, w.get(), 0);
}

void record_call(Call& call, Plan* plan, Ref& result) {
  if (plan->kind == PlanKind::Program && plan->program->transparent) return;
  bool tuple = PyTuple_Check(result.py()) != 0;
  int n = tuple ? static_cast<int>(PyTuple_GET_SIZE(result.py())) : 1;
  Small<PyObject*, 4> objects;
  Small<Tensor*, 4> outs;
  for (int i = 0; i < n; i++) {
    PyObject* o = tuple ? PyTuple_GET_ITEM(result.py(), i) : result.py();
    if (!is_tensor(o)) return;  // numbers, lists: nothing to differentiate
    objects.push(o);
    outs.push(tensor_of(o));
  }
  Backward* b =
      plan->backward_known ? plan->backward : plan_backward(plan, call, objects.data(), n);
  if (!b) return;
  for (int i = 0; i < n; i++) {
    if (!is_operand(call, outs[i]))
      continue;  // a call that returned its operand: the result is a tensor of its own
    Own<Tensor> alias = tensor_alias(outs[i]);
    outs[i] = alias.get();
    if (!tuple) result = Ref(alias.release_object());
    else {
      PyObject* old = PyTuple_GET_ITEM(result.py(), i);
      PyTuple_SET_ITEM(result.py(), i, alias.release_object());
      Py_DECREF(old);
    }
  }
  Own<Node> node = build(call, b, n, nullptr);
  save_outs(node.get(), outs.data());
  for (int i = 0; i < n; i++)
    if (rl::is_differentiable(outs[i]->layout->dtype)) attach(outs[i], node.get(), i);
}

Own<Node> node_before_write(Call& call, Plan* plan, Tensor* out) {
  PyObject* object = py(out);
  Backward* b = plan_backward(plan, call, &object, 1);
  if (!b)
    raise(PyExc_RuntimeError,
        "[%s_] is not differentiable, and the tensor it writes or reads is part of a graph",
        call.op->text);
  return build(call, b, 1, out);
}

Own<Node> node_of_constant(Operator* op) {
  Own<Node> n(node_new(NodeKind::Operator, 0, 0, 0, 1));
  n->op = op;
  return n;
}

void record_write(Node* n, Tensor* out) {
  save_outs(n, &out);
  rebase(out, n, 0);
}

void record_view(Call& call, Tensor* view) {
  encode(call, Variant::View);
  if (!call.needs.size()) return;
  PlanHold hold(plan_find_view(call));
  PyObject* object = py(view);
  Backward* b = plan_backward(hold.plan, call, &object, 1);
  if (!b) return;
  Own<Node> node = build(call, b, 1, nullptr);
  save_outs(node.get(), &view);
  attach(view, node.get(), 0);
}

// ---- functions

namespace {

PyObject* python_node(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "tensors", "backward", "outs", "name", "saved", "materialize", nullptr};
  PyObject *tensors, *callable, *outs, *name, *saved = nullptr;
  int materialize = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOU|Oi", const_cast<char**>(keywords), &tensors,
          &callable, &outs, &name, &saved, &materialize))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Ref in = checked(PySequence_Tuple(tensors)), out = checked(PySequence_Tuple(outs));
    int nin = static_cast<int>(PyTuple_GET_SIZE(in.py())),
        nout = static_cast<int>(PyTuple_GET_SIZE(out.py()));
    Own<Node> n(node_new(NodeKind::Python, nin, 0, 0, nout));
    bool any = false;
    for (int i = 0; i < nin; i++) {
      PyObject* o = PyTuple_GET_ITEM(in.py(), i);
      if (!is_tensor(o) || !needs_grad(tensor_of(o))) continue;
      n->edges[i] = gradient_edge(tensor_of(o));
      any = true;
    }
    if (!any) return out.release();
    NodeExtra* e = node_extra(n.get());
    e->callable = Py_NewRef(callable);
    e->name = Py_NewRef(name);
    e->materialize = materialize;
    if (saved && saved != Py_None) {
      e->saved = check(PySequence_Tuple(saved));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(e->saved); i++)
        if (Py_TYPE(PyTuple_GET_ITEM(e->saved, i)) != SavedTensorType)
          raise(PyExc_TypeError, "[python_node] saved holds SavedTensors only");
      n->had_saved = PyTuple_GET_SIZE(e->saved) > 0;
    }
    for (int i = 0; i < nout; i++) {
      PyObject* o = PyTuple_GET_ITEM(out.py(), i);
      if (!is_tensor(o)) continue;
      Tensor* t = tensor_of(o);
      set_out(n.get(), i, t->layout);
      if (!rl::is_differentiable(t->layout->dtype)) continue;
      bool dirty = false;
      for (int k = 0; k < nin; k++) dirty |= PyTuple_GET_ITEM(in.py(), k) == o;
      if (dirty && t->base && nout > 1)
        raise(PyExc_RuntimeError,
            "[%U] an input that is a view is written to, so it must be the only result", name);
      if (dirty) rebase(t, n.get(), i);
      else attach(t, n.get(), i);
    }
    return out.release();
  });
}

PyObject* as_tuple(PyObject* o) {
  return is_tensor(o) || o == Py_None ? PyTuple_Pack(1, o) : PySequence_Tuple(o);
}

PyObject* grad(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "allow_unused", nullptr};
  PyObject *outputs, *inputs, *gradients = Py_None, *keep = Py_None;
  int create = 0, unused = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOpp", const_cast<char**>(keywords), &outputs,
          &inputs, &gradients, &keep, &create, &unused))
    return nullptr;
  return noted([&] {
    Ref out = checked(as_tuple(outputs)), in = checked(as_tuple(inputs));
    Ref given = gradients == Py_None ? Ref() : checked(as_tuple(gradients));
    bool retain = keep == Py_None ? create : check(PyObject_IsTrue(keep));
    return run_backward(out.py(), given.py(), retain, create, in.py(), false, unused).release();
  });
}

PyObject* backward(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "tensors", "grad_tensors", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *outputs, *gradients = Py_None, *keep = Py_None, *inputs = Py_None;
  int create = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOpO", const_cast<char**>(keywords), &outputs,
          &gradients, &keep, &create, &inputs))
    return nullptr;
  return noted([&] {
    Ref out = checked(as_tuple(outputs));
    Ref given = gradients == Py_None ? Ref() : checked(as_tuple(gradients));
    Ref in = inputs == Py_None ? Ref() : checked(as_tuple(inputs));
    bool retain = keep == Py_None ? create : check(PyObject_IsTrue(keep));
    run_backward(out.py(), given.py(), retain, create, in ? in.py() : Py_None, true, false);
    return Py_NewRef(Py_None);
  });
}

PyObject* watch_nodes(PyObject*, PyObject* watcher) {
  PyObject* before = node_watcher;
  node_watcher = watcher == Py_None ? nullptr : Py_NewRef(watcher);
  return before ? before : Py_NewRef(Py_None);
}

PyObject* set_saved_hooks(PyObject*, PyObject* pair) {
  if (pair != Py_None && (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)) {
    PyErr_SetString(PyExc_TypeError, "set_saved_hooks takes (pack, unpack) or None");
    return nullptr;
  }
  PyObject* before = std::exchange(saved_hooks, pair == Py_None ? nullptr : Py_NewRef(pair));
  return before ? before : Py_NewRef(Py_None);
}
PyObject* get_backward_id(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(backward_id);
}

template <class F>
PyCFunction function(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

}  // namespace

PyMethodDef tape_functions[] = {
    {"python_node", function(python_node), METH_VARARGS | METH_KEYWORDS,
        "python_node(tensors, backward, outs, name, saved=None, materialize=1) -> outs, made by "
        "a node whose derivative is backward(*grads). materialize: where no gradient comes, 0 None, "
        "1 zeros, 2 zeros, and backward(positions, *grads) is told where"},
    {"grad", function(grad), METH_VARARGS | METH_KEYWORDS,
        "grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)"},
    {"backward", function(backward), METH_VARARGS | METH_KEYWORDS,
        "backward(tensors, grad_tensors, retain_graph, create_graph, inputs)"},
    {"set_saved_hooks", set_saved_hooks, METH_O,
        "(pack, unpack) for what is saved from now on in this thread, or None; returns what was"},
    {"watch_nodes", watch_nodes, METH_O,
        "a function that is called with each node that is recorded from now on, or None; returns what was"},
    {"backward_id", get_backward_id, METH_NOARGS, "of the backward pass that runs, or 0; odd in one for given inputs"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
