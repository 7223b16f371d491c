// The backward engine. Takes root tensors with their gradients; gives gradients of leaves or of
// chosen inputs.
// Invariant: a node runs once, after every node that feeds it; no recursion anywhere; the state of
// a run lives in tasks that hang on the nodes, one list an active run, so that nested and
// concurrent runs do not see each other.
#include <algorithm>
#include <deque>

#include "devices.h"
#include "dtype.h"
#include "program.h"
#include "tape.h"

namespace core {

class Run;

struct Task {
  Node* node;
  Run* run;
  Task* next;  // of other runs on the same node
  int32_t deps = 0;
  bool visited = false;
  bool runs, relevant;  // its derivative leads to, or it is, a gradient that is wanted
  std::vector<int> captures;
  Tensor* one[1] = {nullptr};
  std::vector<Tensor*> many;
  Task(Node* n, Run* r, bool wanted)
      : node(n), run(r), next(n->tasks), runs(wanted), relevant(wanted) {
    if (n->nouts > 1) many.resize(n->nouts, nullptr);
    n->tasks = this;
  }
  Tensor*& grad(uint32_t i) { return node->nouts > 1 ? many[i] : one[0]; }
};

namespace {

bool same_shape(const Layout* a, const Layout* b) {
  return a->ndim == b->ndim && !std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim);
}
bool unshared(Tensor* t) {
  return Py_REFCNT(py(t)) == 1 && t->storage->refs == 1 && Py_TYPE(py(t)) == TensorType;
}

// slot = slot + g. In place where nobody else can see the memory.
void accumulate(Tensor*& slot, Own<Tensor> g) {
  if (!slot) {
    slot = g.release();
    return;
  }
  bool in_place = !grad_mode() && unshared(slot) && slot->layout->dense &&
                  slot->layout->dtype == g->layout->dtype;
  if (in_place && slots[kIAdd]) {
    operator_apply(slots[kIAdd], py(slot), g.py());
  } else if (slots[kAdd]) {
    Ref sum = operator_apply(slots[kAdd], py(slot), g.py());
    if (!is_tensor(sum.py()))
      raise(PyExc_RuntimeError, "[add] did not return a Tensor in backward");
    drop_later(py(std::exchange(slot, tensor_of(sum.release()))));
  } else {
    if (grad_mode())
      raise(PyExc_NotImplementedError, "[add] no operator is registered to add gradients");
    Own<Tensor> sum = dense_copy(slot);
    add_into(sum.get(), g.get());
    drop_later(py(std::exchange(slot, sum.release())));
  }
}

// Adds to a leaf's .grad; the first gradient is taken over where nobody shares it.
void accumulate_leaf(Tensor* leaf, Own<Tensor> g) {
  track(leaf);
  TensorExtra* e = extra_of(leaf);
  if (e->grad) {
    bool in_place = !grad_mode() && e->grad->layout->dense;
    if (in_place && slots[kIAdd]) {
      operator_apply(slots[kIAdd], py(e->grad), g.py());
      return;
    }
    Tensor* old = e->grad;
    Py_INCREF(py(old));
    accumulate(old, std::move(g));
    std::swap(e->grad, old);
    drop_later(py(old));
    return;
  }
  const Layout* want = leaf->layout;
  bool fits = g->layout == want || (!want->dense && g->layout->contiguous);
  if (!grad_mode() && fits && unshared(g.get()) && !g->grad_fn && !g->base) {
    e->grad = g.release();
    return;
  }
  Layout* layout = want->dense ? leaf->layout : nullptr;
  if (layout) rl::incref(layout);
  else layout = rl::layout_dense(want->dtype, want->device, want->ndim, want->dims);
  e->grad = copied(g.get(), layout).release();
}

Own<Tensor> window(Tensor* base, const NodeExtra* e) {
  int64_t low, high, base_low, base_high;
  rl::layout_extent(e->view, &low, &high);
  rl::layout_extent(base->layout, &base_low, &base_high);
  const int64_t from = rl::itemsize(base->layout->dtype), to = rl::itemsize(e->view->dtype);
  base_low = base_low * from / to;  // in elements of the view
  base_high = base_high * from / to;
  if (e->view->numel && (e->offset + low < base_low || e->offset + high > base_high))
    raise(PyExc_NotImplementedError,
        "a view reaches outside the memory of its base %s: its in-place derivative is not "
        "supported",
        rl::shape_text(base->layout->ndim, base->layout->dims).c_str());
  rl::incref(e->view);
  return view_make(base, e->view, offset_in(e->view->dtype, base) + e->offset);
}

using Grads = std::vector<Ref>;  // Tensors or null

Ref tensor_or_null(PyObject* o, Node* n, size_t i) {
  if (o == Py_None) return Ref();
  if (!is_tensor(o))
    raise(PyExc_TypeError,
        "function %s returned a gradient of type %s at index %zu; a Tensor or None was expected",
        node_name(n).c_str(), Py_TYPE(o)->tp_name, i);
  return Ref::borrow(o);
}

// `wanted`: bits of the edges whose gradients are; the others may be given or not.
void call_node(Node* n, Grads& grads, bool keep, uint64_t wanted, Grads& result);

void call_operator(Node* n, Grads& grads, bool keep, uint64_t wanted, Grads& result) {
  Backward* b = n->backward;
  if (!b) {  // a constant
    result.resize(n->nedges);
    return;
  }
  Program* program = backward_part(b, wanted);
  int total = n->nouts + static_cast<int>(n->nsaved + n->nparams);
  if (program->ninputs != total)
    raise(PyExc_RuntimeError,
        "[%s] the derivative takes %d inputs; %d gradients, %u saved tensors and %u parameters "
        "were given",
        n->op->text, program->ninputs, n->nouts, n->nsaved, n->nparams);
  Small<PyObject*, 12> inputs;
  struct Drop {
    Small<PyObject*, 12>& in;
    bool armed = true;
    ~Drop() {
      if (armed)
        for (int i = 0; i < in.size(); i++) Py_XDECREF(in[i]);
    }
  } drop{inputs};
  for (int i = 0; i < n->nouts; i++) {
    if (grads[i]) inputs.push(grads[i].release());
    else if (b->undefined) inputs.push(Py_NewRef(Py_None));
    else {
      rl::incref(n->outs[i]);
      inputs.push(tensor_zeros(n->outs[i]).release_object());
    }
  }
  for (uint32_t i = 0; i < n->nsaved; i++)
    inputs.push(saved_unpack(n, n->saved[i]).release_object());
  for (uint32_t i = 0; i < n->nparams; i++) inputs.push(Py_NewRef(n->params[i]));
  if (!keep) node_release(n);  // from here on the registers are the last to hold what was saved
  drop.armed = false;
  CreationScope creation(n->outs[0] ? n->outs[0]->device : creation_device);
  program_run(program, inputs.data(), total, result);
  if (result.size() != n->nedges)
    raise(PyExc_RuntimeError, "[%s] the derivative gives %zu gradients for %u operands",
        n->op->text, result.size(), n->nedges);
  for (size_t i = 0; i < result.size(); i++)
    if (result[i].py() == Py_None) result[i] = Ref();
    else if (!is_tensor(result[i].py()))
      raise(PyExc_TypeError, "[%s] gradient %zu is no Tensor", n->op->text, i);
}

void call_python(Node* n, Grads& grads, Grads& result) {
  int lead = n->extra->materialize == 2, absent = 0;
  Ref args = checked(PyTuple_New(n->nouts + lead));
  if (lead) {
    for (int i = 0; i < n->nouts; i++) absent += !grads[i];
    Ref places = checked(PyTuple_New(absent));
    for (int i = n->nouts; i-- > 0;)
      if (!grads[i]) PyTuple_SET_ITEM(places.py(), --absent, check(PyLong_FromLong(i)));
    PyTuple_SET_ITEM(args.py(), 0, places.release());
  }
  for (int i = 0; i < n->nouts; i++) {
    PyObject* g;
    if (grads[i]) g = grads[i].release();
    else if (n->extra->materialize && n->outs[i]) {
      rl::incref(n->outs[i]);
      g = tensor_zeros(n->outs[i]).release_object();
    } else g = Py_NewRef(Py_None);
    PyTuple_SET_ITEM(args.py(), i + lead, g);
  }
  Ref made = checked(PyObject_Call(n->extra->callable, args.py(), nullptr));
  if (!PyTuple_Check(made.py())) made = checked(PyTuple_Pack(1, made.py()));
  size_t count = static_cast<size_t>(PyTuple_GET_SIZE(made.py()));
  for (size_t i = n->nedges; i < count; i++)
    if (PyTuple_GET_ITEM(made.py(), i) != Py_None)
      raise(PyExc_RuntimeError,
          "[%s] gave an incorrect number of gradients: %zu, for %u inputs",
          node_name(n).c_str(), count, n->nedges);
  if (count < n->nedges)
    raise(PyExc_RuntimeError,
        "[%s] gave an incorrect number of gradients: %zu, for %u inputs",
        node_name(n).c_str(), count, n->nedges);
  for (size_t i = 0; i < n->nedges; i++)
    result.push_back(tensor_or_null(PyTuple_GET_ITEM(made.py(), i), n, i));
}

// Whether a layout may show an element more than once: expanded, or windows that overlap.
bool shows_twice(const Layout* l) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (distance, elements)
  for (int d = 0; d < l->ndim; d++)
    if (l->dims[d] > 1) dims.emplace_back(std::abs(l->strides()[d]), l->dims[d]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, n] : dims) {
    if (stride <= reach) return true;
    reach += stride * (n - 1);
  }
  return false;
}

// The view's gradient, put back where the view looks into its base.
void call_view_of(Node* n, Grads& grads, Grads& result) {
  const NodeExtra* e = n->extra;
  rl::incref(e->base);
  Own<Tensor> base = tensor_zeros(e->base);
  Own<Tensor> view = window(base.get(), e);
  Tensor* g = tensor_of(grads[0].py());
  if (!shows_twice(e->view)) assign(view.get(), grads[0].py());
  else if (grad_mode() && needs_grad(g))
    raise(PyExc_NotImplementedError,
        "create_graph through a view that shows elements more than once, and whose base was "
        "written in place, is not supported");
  else add_into(view.get(), g);
  result.push_back(Ref::borrow(base.py()));
}

// A write through a view: outside the window the base's gradient passes, inside it the inner node
// decides.
void call_write_view(Node* n, Grads& grads, bool keep, uint64_t wanted, Grads& result) {
  const NodeExtra* e = n->extra;
  rl::incref(e->base);
  Own<Tensor> base = copied(tensor_of(grads[0].py()), e->base);
  Own<Tensor> view = window(base.get(), e);
  Own<Tensor> inside = copied(
      view.get(), rl::layout_dense(e->view->dtype, e->view->device, e->view->ndim, e->view->dims));
  Grads inner(e->inner->nouts), made;
  inner[0] = Ref(inside.release_object());
  auto is_window = [&](uint32_t i) { return e->inner->edges[i].node && !n->edges[i + 1].node; };
  uint64_t inside_wanted = wanted == kEvery ? kEvery : wanted >> 1;
  for (uint32_t i = 0; i < e->inner->nedges && inside_wanted != kEvery; i++)
    if (is_window(i)) inside_wanted |= uint64_t{1} << i;
  call_node(e->inner, inner, keep, inside_wanted, made);
  Tensor* through = nullptr;  // the window may have been several operands
  for (uint32_t i = 0; i < e->inner->nedges; i++) {
    if (is_window(i) && made[i]) accumulate(through, Own<Tensor>(tensor_of(made[i].release())));
  }
  Ref value = through ? Ref(py(through)) : checked(PyLong_FromLong(0));
  assign(view.get(), value.py());
  result.push_back(Ref::borrow(base.py()));
  for (Ref& g : made) result.push_back(std::move(g));
}

void call_node(Node* n, Grads& grads, bool keep, uint64_t wanted, Grads& result) {
  if (n->released && n->had_saved)
    raise(PyExc_RuntimeError,
        "[backward] through the graph a second time: what %s saved was freed by the first "
        "backward(), unless that is told retain_graph=True",
        node_name(n).c_str());
  bool any = false;
  for (Ref& g : grads) any |= static_cast<bool>(g);
  if (!any) {
    result.resize(n->nedges);
    return;
  }
  switch (n->kind) {
    case NodeKind::Operator: return call_operator(n, grads, keep, wanted, result);
    case NodeKind::Python: call_python(n, grads, result); break;
    case NodeKind::ViewOf: return call_view_of(n, grads, result);
    case NodeKind::WriteView: call_write_view(n, grads, keep, wanted, result); break;
    default: return;
  }
  if (!keep) node_release(n);
}

// Each hook may replace the gradient.
void run_hooks(PyObject* dict, Tensor*& slot) {
  if (!dict || !slot) return;
  Ref hooks = checked(PyDict_Values(dict));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.py()); i++) {
    Ref made = checked(PyObject_CallOneArg(PyList_GET_ITEM(hooks.py(), i), py(slot)));
    if (made.py() == Py_None) continue;
    if (!is_tensor(made.py()))
      raise(PyExc_TypeError, "expected Variable, but hook returned '%s'",
          Py_TYPE(made.py())->tp_name);
    if (!same_shape(tensor_of(made.py())->layout, slot->layout))
      raise(PyExc_RuntimeError, "hook '%R' has changed the size of the gradient",
          PyList_GET_ITEM(hooks.py(), i));
    drop_later(py(std::exchange(slot, tensor_of(made.release()))));
  }
}

}  // namespace

class Run {
 public:
  Run(bool keep, bool capturing) : keep_(keep), capturing_(capturing) {}
  ~Run() {
    for (Task& t : tasks_) {
      Task** link = &t.node->tasks;
      while (*link != &t) link = &(*link)->next;
      *link = t.next;
      for (uint32_t i = 0; i < t.node->nouts; i++)
        if (t.grad(i)) drop_later(py(t.grad(i)));
    }
    for (Node* n : roots_) drop_later(reinterpret_cast<PyObject*>(n));
  }
  Run(const Run&) = delete;

  void root(Edge edge, Own<Tensor> g) {  // takes over the node
    roots_.push_back(edge.node);
    accumulate(task(edge.node)->grad(edge.output), std::move(g));
  }
  void capture(Edge edge) {  // takes over the node
    roots_.push_back(edge.node);
    captured_edges_.push_back(edge);
  }

  void go(size_t nroots) {
    discover(nroots);
    for (size_t i = 0; i < nroots; i++) {
      Task* t = task(roots_[i]);
      if (t->deps == 0 && t->relevant) push(t);
    }
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), before);
      Task* t = queue_.back();
      queue_.pop_back();
      execute(t);
    }
  }

  std::vector<Ref> captured;

 private:
  static bool before(const Task* a, const Task* b) { return a->node->sequence < b->node->sequence; }
  void push(Task* t) {
    t->deps = -1;
    queue_.push_back(t);
    std::push_heap(queue_.begin(), queue_.end(), before);
  }

  Task* find(Node* n) {
    for (Task* t = n->tasks; t; t = t->next)
      if (t->run == this) return t;
    return nullptr;
  }
  Task* task(Node* n) {
    if (Task* t = find(n)) return t;
    tasks_.emplace_back(n, this, !capturing_);
    return &tasks_.back();
  }

  // Depth first without recursion: counts incoming edges, and marks what leads to a captured
  // gradient.
  void discover(size_t nroots) {
    captured.resize(captured_edges_.size());
    for (size_t i = 0; i < captured_edges_.size(); i++) {
      Task* t = task(captured_edges_[i].node);
      t->captures.push_back(static_cast<int>(i));
      t->relevant = true;
    }
    struct Frame {
      Task* task;
      uint32_t edge;
    };
    std::vector<Frame> stack;
    for (size_t i = 0; i < nroots; i++) {
      Task* root = task(roots_[i]);
      if (root->visited) continue;
      root->visited = true;
      stack.push_back({root, 0});
      while (!stack.empty()) {
        Frame& f = stack.back();
        Task* from = f.task;
        if (f.edge == from->node->nedges) {
          stack.pop_back();
          if (from->relevant && !stack.empty())
            stack.back().task->runs = stack.back().task->relevant = true;
          continue;
        }
        Node* next = from->node->edges[f.edge++].node;
        if (!next) continue;
        Task* t = task(next);
        t->deps++;
        if (!t->visited) {
          t->visited = true;
          stack.push_back({t, 0});
        } else if (t->relevant) {
          from->runs = from->relevant = true;
        }
      }
    }
  }

  void execute(Task* t) {
    Node* n = t->node;
    if (n->kind == NodeKind::Accumulate && n->variable && n->variable->extra)
      run_hooks(n->variable->extra->hooks, t->grad(0));
    if (n->extra) before_node(t);
    for (int i : t->captures) {
      Tensor* g = t->grad(captured_edges_[i].output);
      if (g) captured[i] = Ref::borrow(py(g));
    }
    if (!t->runs) {
      release(t);
      return;
    }
    Grads grads(n->nouts), result;
    for (uint32_t i = 0; i < n->nouts; i++)
      grads[i] = Ref(reinterpret_cast<PyObject*>(std::exchange(t->grad(i), nullptr)));
    if (n->kind == NodeKind::Accumulate) {
      if (grads[0] && n->variable) leaf(n->variable, Own<Tensor>(tensor_of(grads[0].release())));
      return;
    }
    if (into_window(n, grads)) return;
    std::vector<Ref> before_hooks;
    bool hooked = n->extra && n->extra->post_hooks && PyDict_GET_SIZE(n->extra->post_hooks);
    if (hooked) before_hooks = grads;
    call_node(n, grads, keep_, capturing_ ? wanted_of(n) : kEvery, result);
    if (hooked) after_node(n, before_hooks, result);
    distribute(n, result);
  }

  // Bits of the edges that lead to a gradient that is wanted.
  uint64_t wanted_of(Node* n) {
    if (n->nedges > 63) return kEvery;
    uint64_t bits = 0, all = 0;
    for (uint32_t i = 0; i < n->nedges; i++) {
      if (!n->edges[i].node) continue;
      Task* next = find(n->edges[i].node);
      all |= uint64_t{1} << i;
      if (next && next->relevant) bits |= uint64_t{1} << i;
    }
    return bits == all ? kEvery : bits;
  }

  // The gradient of x[i] or x[i:j] goes straight to its place in the gradient of x: pieces of one
  // tensor (split, steps of a sequence) cost their own size, not each that of the whole.
  bool into_window(Node* n, Grads& grads) {
    if (n->kind != NodeKind::Operator || !n->backward || n->backward->window.empty() ||
        grad_mode() || !grads[0] || !slots[kIAdd] || !n->edges[0].node ||
        (n->extra && n->extra->post_hooks && PyDict_GET_SIZE(n->extra->post_hooks)))
      return false;
    Edge edge = n->edges[0];
    Task* next = find(edge.node);
    const Layout* whole = edge.node->variable ? edge.node->variable->layout
                                              : edge.node->outs[edge.output];
    Tensor* g = tensor_of(grads[0].py());
    if (!next || !next->relevant || !whole || whole->dtype != g->layout->dtype) return false;
    Tensor*& slot = next->grad(edge.output);
    bool fresh = !slot;
    if (!fresh && !(unshared(slot) && slot->layout->dense && same_shape(slot->layout, whole) &&
                      slot->layout->dtype == g->layout->dtype))
      return false;
    if (fresh)
      slot = tensor_zeros(
          rl::layout_dense(whole->dtype, whole->device, whole->ndim, whole->dims)).release();
    const Backward* b = n->backward;
    PyObject* values[kMaxParams];
    for (size_t i = 0; i < b->window.size(); i++) values[i] = b->window[i];
    for (size_t i = 0; i < b->params.size(); i++) values[b->params[i]] = n->params[i];
    values[0] = py(slot);
    Ref place = operator_apply(n->op, values, n->op->nparams);
    if (!fresh) operator_apply(slots[kIAdd], place.py(), grads[0].py());
    else copy_into(tensor_of(place.py()), g);
    if (!keep_) node_release(n);
    if (--next->deps == 0) push(next);
    return true;
  }

  void leaf(Tensor* variable, Own<Tensor> g) {
    Own<Tensor> alive = Own<Tensor>::borrow(variable);
    accumulate_leaf(variable, std::move(g));
    if (!variable->extra->post_hooks) return;
    Ref hooks = checked(PyDict_Values(variable->extra->post_hooks));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.py()); i++)
      checked(PyObject_CallOneArg(PyList_GET_ITEM(hooks.py(), i), py(variable)));
  }

  void release(Task* t) {
    for (uint32_t i = 0; i < t->node->nouts; i++)
      if (t->grad(i)) drop_later(py(std::exchange(t->grad(i), nullptr)));
  }

  void before_node(Task* t) {
    NodeExtra* e = t->node->extra;
    if (e->pre_hooks && PyDict_GET_SIZE(e->pre_hooks)) {
      Ref hooks = checked(PyDict_Values(e->pre_hooks));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.py()); i++) {
        Ref grads = checked(PyTuple_New(t->node->nouts));
        for (uint32_t k = 0; k < t->node->nouts; k++)
          PyTuple_SET_ITEM(grads.py(), k, Py_NewRef(t->grad(k) ? py(t->grad(k)) : Py_None));
        Ref made = checked(PyObject_CallOneArg(PyList_GET_ITEM(hooks.py(), i), grads.py()));
        if (made.py() == Py_None) continue;
        if (!PyTuple_Check(made.py()) || PyTuple_GET_SIZE(made.py()) != t->node->nouts)
          raise(PyExc_TypeError, "a prehook must return a tuple of %d gradients or None",
              t->node->nouts);
        for (uint32_t k = 0; k < t->node->nouts; k++) {
          Ref g = tensor_or_null(PyTuple_GET_ITEM(made.py(), k), t->node, k);
          Tensor* old = std::exchange(t->grad(k), reinterpret_cast<Tensor*>(g.release()));
          if (old) drop_later(py(old));
        }
      }
    }
    for (size_t i = 0; i < e->hooks.size(); i++) {
      Ref dict = Ref::borrow(e->hooks[i].hooks);
      run_hooks(dict.py(), t->grad(e->hooks[i].output));
    }
    for (size_t i = 0; i < e->retained.size(); i++) {
      PyObject* kept = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
      if (PyWeakref_GetRef(e->retained[i].weak, &kept) < 0) throw PythonError();
#else
      kept = PyWeakref_GetObject(e->retained[i].weak);
      if (kept == Py_None) kept = nullptr;
      Py_XINCREF(kept);
#endif
      Ref owner(kept);
      Tensor* g = t->grad(e->retained[i].output);
      if (!owner || !g || tensor_of(owner.py())->grad_fn != t->node) continue;
      TensorExtra* x = extra_of(tensor_of(owner.py()));
      track(tensor_of(owner.py()));
      accumulate(x->grad, Own<Tensor>::borrow(g));
    }
  }

  void after_node(Node* n, std::vector<Ref>& outputs, Grads& result) {
    auto pack = [](const std::vector<Ref>& list) {
      Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(list.size())));
      for (size_t i = 0; i < list.size(); i++)
        PyTuple_SET_ITEM(tuple.py(), i, Py_NewRef(list[i] ? list[i].py() : Py_None));
      return tuple;
    };
    Ref given = pack(outputs), hooks = checked(PyDict_Values(n->extra->post_hooks));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.py()); i++) {
      Ref mine = pack(result);
      PyObject* args[2] = {mine.py(), given.py()};
      Ref made = checked(PyObject_Vectorcall(PyList_GET_ITEM(hooks.py(), i), args, 2, nullptr));
      if (made.py() == Py_None) continue;
      if (!PyTuple_Check(made.py()) ||
          static_cast<size_t>(PyTuple_GET_SIZE(made.py())) != result.size())
        raise(
            PyExc_TypeError, "a hook must return a tuple of %zu gradients or None", result.size());
      for (size_t k = 0; k < result.size(); k++)
        result[k] = tensor_or_null(PyTuple_GET_ITEM(made.py(), k), n, k);
    }
  }

  void distribute(Node* n, Grads& result) {
    for (uint32_t i = 0; i < n->nedges; i++) {
      Edge edge = n->edges[i];
      if (!edge.node) continue;
      Task* next = find(edge.node);
      if (!next) continue;  // an edge that appeared meanwhile
      if (next->relevant && result[i])
        accumulate(next->grad(edge.output), fitted(n, i, edge, std::move(result[i])));
      if (--next->deps == 0 && next->relevant) push(next);
    }
  }

  // The gradient in the shape and dtype of what it is the gradient of.
  Own<Tensor> fitted(Node* n, uint32_t i, Edge edge, Ref g) {
    Own<Tensor> t(tensor_of(g.release()));
    const Layout *got = t->layout, *want = edge.node->outs[edge.output];
    if (edge.node->variable) want = edge.node->variable->layout;
    if (!want || got == want) return t;
    if (!same_shape(got, want))
      raise(PyExc_RuntimeError,
          "function %s returned an invalid gradient at index %u - got %s but expected shape "
          "compatible with %s",
          node_name(n).c_str(), i, rl::shape_text(got->ndim, got->dims).c_str(),
          rl::shape_text(want->ndim, want->dims).c_str());
    if (got->dtype == want->dtype && got->device == want->device) return t;
    return copied(t.get(), rl::layout_dense(want->dtype, want->device, want->ndim, want->dims));
  }

  bool keep_, capturing_;
  std::deque<Task> tasks_;
  std::vector<Task*> queue_;
  std::vector<Node*> roots_;
  std::vector<Edge> captured_edges_;
};

__thread uint64_t backward_id __attribute__((tls_model("initial-exec"))) = 0;

namespace {

// A number for each run, so that hooks can tell one from another; odd where gradients of given
// tensors are wanted.
class BackwardScope {
 public:
  explicit BackwardScope(bool captures) : before_(backward_id) {
    static uint64_t runs = 0;
    backward_id = ++runs << 1 | captures;
  }
  ~BackwardScope() { backward_id = before_; }

 private:
  uint64_t before_;
};

}  // namespace

Ref run_backward(PyObject* outputs, PyObject* gradients, bool keep, bool create, PyObject* inputs,
    bool accumulating, bool allow_unused) {
  Ref list = checked(PySequence_Tuple(outputs));
  Ref given = gradients ? checked(PySequence_Tuple(gradients)) : Ref();
  Py_ssize_t n = PyTuple_GET_SIZE(list.py());
  if (given && PyTuple_GET_SIZE(given.py()) != n)
    raise(PyExc_RuntimeError, "got %zd tensors and %zd gradients", n, PyTuple_GET_SIZE(given.py()));
  bool capturing = inputs && inputs != Py_None;
  Ref wanted = capturing
                   ? checked(is_tensor(inputs) ? PyTuple_Pack(1, inputs) : PySequence_Tuple(inputs))
                   : Ref();
  if (capturing && accumulating && PyTuple_GET_SIZE(wanted.py()) == 0)
    raise(PyExc_RuntimeError, "'inputs' argument to backward() cannot be empty.");
  // Without autocast: each step has the dtypes that its forward step had.
  ModeScope scope((create ? mode | kGrad : mode & ~kGrad) & ~kCasting);
  BackwardScope number(capturing);
  Run run(keep, capturing);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject* o = PyTuple_GET_ITEM(list.py(), i);
    if (!is_tensor(o))
      raise(
          PyExc_TypeError, "element %zd of tensors is a %s, not a Tensor", i, Py_TYPE(o)->tp_name);
    Tensor* t = tensor_of(o);
    if (!needs_grad(t))
      raise(PyExc_RuntimeError,
          "[backward] tensor %zd does not require grad: no operation on a tensor that does gave it", i);
    PyObject* g = given ? PyTuple_GET_ITEM(given.py(), i) : Py_None;
    Own<Tensor> start;
    if (g == Py_None) {
      if (t->layout->numel != 1)
        raise(PyExc_RuntimeError, "[backward] of scalar outputs the gradient to begin with is 1; "
                                  "for another shape give one");
      if (rl::is_complex(t->layout->dtype))
        raise(PyExc_RuntimeError,
            "[backward] of real scalar outputs the gradient to begin with is 1; for %s give one",
            dtype_name(t->layout->dtype));
      start = tensor_dense(
          t->layout->dtype, t->layout->ndim, t->layout->dims, t->layout->device);
      fill_one(start.get());
    } else {
      if (!is_tensor(g))
        raise(PyExc_TypeError, "[backward] a gradient is a tensor or None, got %s",
            Py_TYPE(g)->tp_name);
      start = Own<Tensor>::borrow(tensor_of(g));
      if (!same_shape(start->layout, t->layout))
        raise(PyExc_RuntimeError,
            "Mismatch in shape: grad_output[%zd] has a shape of %s and output[%zd] has a shape of "
            "%s.",
            i, rl::shape_text(start->layout->ndim, start->layout->dims).c_str(), i,
            rl::shape_text(t->layout->ndim, t->layout->dims).c_str());
      if (start->layout->dtype != t->layout->dtype)
        start = copied(start.get(), rl::layout_dense(t->layout->dtype, t->layout->device,
                                        t->layout->ndim, t->layout->dims));
    }
    run.root(gradient_edge(t), std::move(start));
  }
  Py_ssize_t m = capturing ? PyTuple_GET_SIZE(wanted.py()) : 0;
  for (Py_ssize_t i = 0; i < m; i++) {
    PyObject* o = PyTuple_GET_ITEM(wanted.py(), i);
    if (!is_tensor(o) || !needs_grad(tensor_of(o)))
      raise(PyExc_RuntimeError, "[grad] number %zd of the inputs does not require grad", i);
    run.capture(gradient_edge(tensor_of(o)));
  }
  run.go(static_cast<size_t>(n));
  if (accumulating) {
    for (Py_ssize_t i = 0; i < m; i++)
      if (run.captured[i])
        accumulate_leaf(tensor_of(PyTuple_GET_ITEM(wanted.py(), i)),
            Own<Tensor>(tensor_of(run.captured[i].release())));
    return Ref::borrow(Py_None);
  }
  Ref result = checked(PyTuple_New(m));
  for (Py_ssize_t i = 0; i < m; i++) {
    if (!run.captured[i] && !allow_unused)
      raise(PyExc_RuntimeError,
          "[grad] input %zd was not used in the graph: allow_unused=True gives None for it",
          i);
    PyTuple_SET_ITEM(
        result.py(), i, run.captured[i] ? run.captured[i].release() : Py_NewRef(Py_None));
  }
  return result;
}

}  // namespace core
