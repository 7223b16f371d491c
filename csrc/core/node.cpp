// Nodes as objects: their life, hooks, saved tensors, and what Python sees of them. Takes sizes and
// references; invariant: see tape.h. Versions are noted when a tensor is saved and compared when it
// is read.
#include "dtype.h"
#include "tape.h"

namespace core {

PyTypeObject *NodeType, *SavedTensorType;
int64_t live_nodes = 0;

namespace {

constexpr int kFree = kFreeLists ? 512 : 0;
Node* free_nodes[kFree + 1];
int free_count = 0;
uint64_t sequence = 0;

template <class T>
T* room(T* inside, int capacity, int n) {
  return n <= capacity ? inside : static_cast<T*>(std::malloc(sizeof(T) * n));
}

void drop_packed(Packed* p) {
  if (p->maker.node) drop_later(py(p->maker.node));
  Py_XDECREF(p->value);
  Py_XDECREF(p->unpack);
  delete p;
}

void drop_saved(Saved& s) {
  if (s.packed) drop_packed(std::exchange(s.packed, nullptr));
  if (s.operand) drop_later(py(std::exchange(s.operand, nullptr)));
  if (s.storage) rl::decref(std::exchange(s.storage, nullptr));
  if (s.layout) rl::decref(std::exchange(s.layout, nullptr));
  if (s.counter) counter_drop(std::exchange(s.counter, nullptr));
}

int visit_saved(const Saved& s, visitproc visit, void* arg) {
  Py_VISIT(s.operand);
  if (const Packed* p = s.packed) {
    Py_VISIT(p->value);
    Py_VISIT(p->unpack);
    Py_VISIT(p->maker.node);
  }
  return 0;
}

void drop_contents(Node* n) {
  for (uint32_t i = 0; i < n->nsaved; i++) drop_saved(n->saved[i]);
  for (uint32_t i = 0; i < n->nparams; i++) Py_CLEAR(n->params[i]);
  for (uint32_t i = 0; i < n->nedges; i++)
    if (n->edges[i].node) drop_later(py(std::exchange(n->edges[i].node, nullptr)));
  if (n->variable) {
    if (n->variable->extra && n->variable->extra->accumulator == n)
      n->variable->extra->accumulator = nullptr;
    drop_later(py(std::exchange(n->variable, nullptr)));
  }
  if (NodeExtra* e = n->extra) {
    for (HookEntry& h : e->hooks) Py_CLEAR(h.hooks);
    for (RetainEntry& r : e->retained) Py_CLEAR(r.weak);
    for (PyObject** p :
        {&e->post_hooks, &e->pre_hooks, &e->metadata, &e->name, &e->callable, &e->saved})
      Py_CLEAR(*p);
    if (e->inner) drop_later(py(std::exchange(e->inner, nullptr)));
  }
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  Node* n = node_of(o);
  Py_VISIT(Py_TYPE(o));
  for (uint32_t i = 0; i < n->nedges; i++) Py_VISIT(n->edges[i].node);
  for (uint32_t i = 0; i < n->nsaved; i++)
    if (int r = visit_saved(n->saved[i], visit, arg)) return r;
  for (uint32_t i = 0; i < n->nparams; i++) Py_VISIT(n->params[i]);
  Py_VISIT(n->variable);
  if (NodeExtra* e = n->extra) {
    for (HookEntry& h : e->hooks) Py_VISIT(h.hooks);
    for (RetainEntry& r : e->retained) Py_VISIT(r.weak);
    for (PyObject* p : {e->post_hooks, e->pre_hooks, e->metadata, e->name, e->callable, e->saved})
      Py_VISIT(p);
    Py_VISIT(e->inner);
  }
  return 0;
}

int clear(PyObject* o) {
  drop_contents(node_of(o));
  return 0;
}

void dealloc(PyObject* o) {
  Node* n = node_of(o);
  PyObject_GC_UnTrack(o);
  if (n->weakrefs) PyObject_ClearWeakRefs(o);
  drop_contents(n);
  live_nodes--;
  for (int i = 0; i < n->nouts; i++)
    if (n->outs[i]) rl::decref(n->outs[i]);
  if (n->backward) backward_drop(n->backward);
  if (n->extra) {
    if (n->extra->base) rl::decref(n->extra->base);
    if (n->extra->view) rl::decref(n->extra->view);
    delete n->extra;
  }
  if (n->edges != n->inline_edges) std::free(n->edges);
  if (n->saved != n->inline_saved) std::free(n->saved);
  if (n->params != n->inline_params) std::free(n->params);
  if (n->outs != n->inline_outs) std::free(n->outs);
  PyTypeObject* type = Py_TYPE(o);
  if (free_count < kFree) free_nodes[free_count++] = n;
  else PyObject_GC_Del(o);
  Py_DECREF(type);
}

}  // namespace

__thread PyObject* saved_hooks __attribute__((tls_model("initial-exec"))) = nullptr;

// output >= 0: the hook gets the memory alone, for the tensor would hold its own node.
void pack_saved(Saved& s, Tensor* t, int output) {
  Ref hooks = Ref::borrow(saved_hooks);
  Packed* p = s.packed = new Packed{};
  s.output = output;
  rl::incref(s.layout = t->layout);
  p->unpack = Py_NewRef(PyTuple_GET_ITEM(hooks.py(), 1));
  if (output < 0) p->maker = gradient_edge(t);
  Own<Tensor> alone;
  if (output >= 0) t = (alone = tensor_alias(t)).get();
  ModeScope off(mode & ~kGrad);
  p->value = checked(PyObject_CallOneArg(PyTuple_GET_ITEM(hooks.py(), 0), py(t))).release();
}

void save_memory(Saved& s, Tensor* t, int64_t version, int output) {
  if (saved_hooks) return pack_saved(s, t, output);
  s.operand = nullptr;
  s.storage = t->storage;
  s.layout = t->layout;
  s.counter = counter_of(t);
  rl::incref(s.storage);
  rl::incref(s.layout);
  s.counter->refs++;
  s.offset = t->offset;
  s.version = version;
  s.output = output;
}

void save_operand(Saved& s, Tensor* t, int64_t version) {
  if (saved_hooks) return pack_saved(s, t, -1);
  s = Saved{nullptr, t, nullptr, nullptr, nullptr, 0, version, -1};
  Py_INCREF(py(t));
}

namespace {

// ---- hooks

struct HookHandle {
  PyObject_HEAD PyObject *hooks, *id;
};
PyTypeObject* HookHandleType;
HookHandle* handle_of(PyObject* o) { return reinterpret_cast<HookHandle*>(o); }

PyObject* handle_remove(PyObject* o, PyObject*) {
  HookHandle* h = handle_of(o);
  if (h->hooks && PyDict_DelItem(h->hooks, h->id) < 0) PyErr_Clear();
  Py_RETURN_NONE;
}
PyObject* handle_enter(PyObject* o, PyObject*) { return Py_NewRef(o); }
PyObject* handle_exit(PyObject* o, PyObject*) { return handle_remove(o, nullptr); }
PyObject* handle_id(PyObject* o, void*) { return Py_NewRef(handle_of(o)->id); }
int handle_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(handle_of(o)->hooks);  // a hook that removes itself holds its handle
  return 0;
}
int handle_clear(PyObject* o) {
  Py_CLEAR(handle_of(o)->hooks);
  return 0;
}
void handle_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  Py_XDECREF(handle_of(o)->hooks);
  Py_XDECREF(handle_of(o)->id);
  type->tp_free(o);
  Py_DECREF(type);
}

Ref add_hook(PyObject* dict, PyObject* callable) {
  static long long ids = 0;
  if (!PyCallable_Check(callable))
    raise(PyExc_TypeError, "a hook must be callable, got %s", Py_TYPE(callable)->tp_name);
  Ref handle = checked(HookHandleType->tp_alloc(HookHandleType, 0));
  handle_of(handle.py())->hooks = Py_NewRef(dict);
  handle_of(handle.py())->id = check(PyLong_FromLongLong(ids++));
  check(PyDict_SetItem(dict, handle_of(handle.py())->id, callable));
  return handle;
}

PyObject* dict_at(PyObject** place) {
  if (!*place) *place = check(PyDict_New());
  return *place;
}

// ---- tensors that Python's autograd functions save

struct SavedTensor {
  PyObject_HEAD Saved saved;
  bool released;
};
SavedTensor* saved_of(PyObject* o) { return reinterpret_cast<SavedTensor*>(o); }

PyObject* saved_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"tensor", "output", nullptr};
  PyObject* tensor;
  int output = -1;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!|i", const_cast<char**>(keywords), TensorType, &tensor, &output))
    return nullptr;
  return guarded([&] {
    SavedTensor* s = saved_of(check(type->tp_alloc(type, 0)));
    Tensor* t = tensor_of(tensor);
    if (output >= 0) save_memory(s->saved, t, version_of(t), output);
    else save_operand(s->saved, t, version_of(t));
    return reinterpret_cast<PyObject*>(s);
  });
}
[[noreturn]] void second_time() {
  raise(PyExc_RuntimeError,
      "[backward] through the graph a second time: what was saved for it was freed by the first "
      "backward(), unless that is told retain_graph=True");
}
PyObject* saved_get(PyObject* o, PyObject* args) {
  PyObject* node = Py_None;
  if (!PyArg_ParseTuple(args, "|O", &node)) return nullptr;
  return guarded([&] {
    SavedTensor* s = saved_of(o);
    if (s->released) second_time();
    return saved_unpack(Py_TYPE(node) == NodeType ? node_of(node) : nullptr, s->saved)
        .release_object();
  });
}
int saved_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  return visit_saved(saved_of(o)->saved, visit, arg);
}
int saved_clear(PyObject* o) {
  drop_saved(saved_of(o)->saved);
  saved_of(o)->released = true;
  return 0;
}
void saved_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  saved_clear(o);
  type->tp_free(o);
  Py_DECREF(type);
}

// ---- the Python type

PyObject* get_name(PyObject* o, void*) {
  return PyUnicode_FromString(node_name(node_of(o)).c_str());
}
PyObject* call_name(PyObject* o, PyObject*) { return get_name(o, nullptr); }
PyObject* get_next(PyObject* o, void*) {
  return guarded([&] {
    Node* n = node_of(o);
    Ref tuple = checked(PyTuple_New(n->nedges));
    for (uint32_t i = 0; i < n->nedges; i++) {
      PyObject* next = n->edges[i].node ? py(n->edges[i].node) : Py_None;
      PyTuple_SET_ITEM(tuple.py(), i, check(Py_BuildValue("OI", next, n->edges[i].output)));
    }
    return tuple.release();
  });
}
PyObject* get_metadata(PyObject* o, void*) {
  return guarded([&] { return Py_NewRef(dict_at(&node_extra(node_of(o))->metadata)); });
}
PyObject* get_variable(PyObject* o, void*) {
  return Py_NewRef(node_of(o)->variable ? py(node_of(o)->variable) : Py_None);
}
PyObject* get_sequence(PyObject* o, void*) {
  return PyLong_FromUnsignedLongLong(node_of(o)->sequence);
}
PyObject* get_operator(PyObject* o, void*) {
  Operator* op = node_of(o)->op;
  return Py_NewRef(op ? reinterpret_cast<PyObject*>(op) : Py_None);
}
PyObject* node_hook(PyObject* o, PyObject* callable) {
  return guarded(
      [&] { return add_hook(dict_at(&node_extra(node_of(o))->post_hooks), callable).release(); });
}
PyObject* node_prehook(PyObject* o, PyObject* callable) {
  return guarded(
      [&] { return add_hook(dict_at(&node_extra(node_of(o))->pre_hooks), callable).release(); });
}
PyObject* node_repr(PyObject* o) {
  return PyUnicode_FromFormat("<%s at %p>", node_name(node_of(o)).c_str(), o);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyMethodDef node_methods[] = {
    {"register_hook", node_hook, METH_O, "hook(grad_inputs, grad_outputs) -> grad_inputs or None"},
    {"name", call_name, METH_NOARGS, "\"AddBackward0\""},
    {"register_prehook", node_prehook, METH_O, "hook(grad_outputs) -> grad_outputs or None"},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef node_getset[] = {
    {"__name__", get_name, nullptr, nullptr, nullptr},
    {"next_functions", get_next, nullptr, "((node or None, output number), ...), one an operand",
        nullptr},
    {"metadata", get_metadata, nullptr, "a dict of yours", nullptr},
    {"variable", get_variable, nullptr, "AccumulateGrad: the leaf", nullptr},
    {"operator", get_operator, nullptr, "the operator that ran, where one did", nullptr},
    {"_sequence_nr", get_sequence, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef node_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot node_slots[] = {
    {Py_tp_dealloc, fn(dealloc)},
    {Py_tp_traverse, fn(traverse)},
    {Py_tp_clear, fn(clear)},
    {Py_tp_repr, fn(node_repr)},
    {Py_tp_methods, node_methods},
    {Py_tp_getset, node_getset},
    {Py_tp_members, node_members},
    {0, nullptr},
};
PyType_Spec node_spec = {"rushlight._core.Node", sizeof(Node), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, node_slots};

PyMethodDef handle_methods[] = {
    {"remove", handle_remove, METH_NOARGS, nullptr},
    {"__enter__", handle_enter, METH_NOARGS, nullptr},
    {"__exit__", handle_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef handle_getset[] = {
    {"id", handle_id, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot handle_slots[] = {{Py_tp_dealloc, fn(handle_dealloc)},
    {Py_tp_traverse, fn(handle_traverse)}, {Py_tp_clear, fn(handle_clear)},
    {Py_tp_methods, handle_methods}, {Py_tp_getset, handle_getset}, {0, nullptr}};
PyType_Spec handle_spec = {"rushlight._core.RemovableHandle", sizeof(HookHandle), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, handle_slots};

PyMethodDef saved_methods[] = {
    {"unpack", saved_get, METH_VARARGS, "the tensor, after its version is checked"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot saved_slots[] = {
    {Py_tp_new, fn(saved_new)},
    {Py_tp_dealloc, fn(saved_dealloc)},
    {Py_tp_traverse, fn(saved_traverse)},
    {Py_tp_clear, fn(saved_clear)},
    {Py_tp_methods, saved_methods},
    {0, nullptr},
};
PyType_Spec saved_spec = {"rushlight._core.SavedTensor", sizeof(SavedTensor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, saved_slots};

}  // namespace

// ---- nodes

Node* node_new(NodeKind kind, int nedges, int nsaved, int nparams, int nouts) {
  Node* n;
  if (free_count) {
    n = free_nodes[--free_count];
    PyObject_Init(py(n), NodeType);
  } else {
    n = PyObject_GC_New(Node, NodeType);
    check(py(n));
  }
  std::memset(reinterpret_cast<char*>(n) + offsetof(Node, kind), 0,
      offsetof(Node, inline_edges) - offsetof(Node, kind));
  n->kind = kind;
  n->edges = room(n->inline_edges, 3, nedges);
  n->saved = room(n->inline_saved, 2, nsaved);
  n->params = room(n->inline_params, 2, nparams);
  n->outs = room(n->inline_outs, 1, nouts);
  for (int i = 0; i < nedges; i++) n->edges[i] = Edge{nullptr, 0};
  for (int i = 0; i < nsaved; i++) n->saved[i] = Saved{};
  for (int i = 0; i < nparams; i++) n->params[i] = nullptr;
  for (int i = 0; i < nouts; i++) n->outs[i] = nullptr;
  n->nedges = nedges;
  n->nsaved = nsaved;
  n->nparams = nparams;
  n->nouts = static_cast<uint16_t>(nouts);
  n->sequence = kind == NodeKind::Accumulate ? UINT64_MAX : ++sequence;
  live_nodes++;
  PyObject_GC_Track(py(n));
  return n;
}

NodeExtra* node_extra(Node* n) {
  if (!n->extra) n->extra = new NodeExtra;
  return n->extra;
}

void node_release(Node* n) {
  n->released = true;
  for (uint32_t i = 0; i < n->nsaved; i++) drop_saved(n->saved[i]);
  if (!n->extra) return;                               // numbers stay: another backward may read them
  if (n->extra->inner) node_release(n->extra->inner);
  if (n->extra->saved)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(n->extra->saved); i++)
      saved_clear(PyTuple_GET_ITEM(n->extra->saved, i));
}

std::string node_name(Node* n) {
  switch (n->kind) {
    case NodeKind::Accumulate: return "AccumulateGrad";
    case NodeKind::WriteView: return "CopySlices";
    case NodeKind::ViewOf: return "AsStridedBackward0";
    case NodeKind::Python:
      return n->extra && n->extra->name ? PyUnicode_AsUTF8(n->extra->name) : "PythonNode";
    default: break;
  }
  std::string name;
  bool up = true;
  for (const char* c = n->op->text; *c && *c != '.'; c++) {
    if (*c == '_') {
      up = true;
      continue;
    }
    name += up && *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 32) : *c;
    up = false;
  }
  return name + "Backward0";
}

// The tensor that an unpack hook gives, at the place in the graph of the one that was packed.
Own<Tensor> unpacked(Node* n, const Saved& s) {
  Packed* p = s.packed;
  Ref made = checked(PyObject_CallOneArg(p->unpack, p->value));
  if (!is_tensor(made.py()))
    raise(PyExc_TypeError,
        "[saved_tensors_hooks] unpack_hook has to give a Tensor, got %s",
        Py_TYPE(made.py())->tp_name);
  Own<Tensor> t = tensor_alias(tensor_of(made.py()));
  if (!rl::is_differentiable(t->layout->dtype)) return t;
  if (s.output >= 0 && n) attach(t.get(), n, s.output);
  else if (p->maker.node) attach(t.get(), p->maker.node, p->maker.output);
  return t;
}

Own<Tensor> saved_unpack(Node* n, const Saved& s) {
  if (s.packed) return unpacked(n, s);
  int64_t version = s.operand ? version_of(s.operand) : s.counter ? s.counter->value : 0;
  const Layout* l = s.operand ? s.operand->layout : s.layout;
  if (!l) second_time();
  if (version != s.version) {
    std::string source = "an operand";
    Node* maker = s.output >= 0 ? n : s.operand ? s.operand->grad_fn : nullptr;
    if (maker)
      source = "output " +
               std::to_string(s.output >= 0 ? s.output : static_cast<int>(s.operand->output)) +
               " of " + node_name(maker);
    raise(PyExc_RuntimeError,
        "[backward] %s needs a tensor as it was, which has been modified by an inplace operation: "
        "[%s %s], %s, is at version %lld; expected version %lld",
        n ? node_name(n).c_str() : "an autograd function", dtype_name(l->dtype),
        rl::shape_text(l->ndim, l->dims).c_str(), source.c_str(), static_cast<long long>(version),
        static_cast<long long>(s.version));
  }
  if (s.operand) return Own<Tensor>::borrow(s.operand);
  rl::incref(s.storage);
  rl::incref(s.layout);
  Own<Tensor> t = tensor_make(s.storage, s.layout, s.offset);
  t->counter = s.counter;
  s.counter->refs++;
  if (n && s.output >= 0 && rl::is_differentiable(s.layout->dtype)) attach(t.get(), n, s.output);
  return t;
}

// ---- hooks of tensors

Ref tensor_hook(Tensor* t, PyObject* callable) {
  if (!needs_grad(t))
    raise(PyExc_RuntimeError, "[register_hook] the tensor doesn't require gradient, so the hook "
                              "would never run");
  Node* n = current_grad_fn(t);
  TensorExtra* e = extra_of(t);
  if (!e->hooks) {
    dict_at(&e->hooks);
    track(t);
    if (n) node_extra(n)->hooks.push_back({t->output, Py_NewRef(e->hooks)});
  }
  return add_hook(e->hooks, callable);
}

Ref tensor_post_hook(Tensor* t, PyObject* callable) {
  if (!needs_grad(t) || current_grad_fn(t))
    raise(
        PyExc_RuntimeError, "[register_post_accumulate_grad_hook] gradients accumulate in leaves, "
                            "this is a non-leaf");
  track(t);
  return add_hook(dict_at(&extra_of(t)->post_hooks), callable);
}

void tensor_retain_grad(Tensor* t) {
  if (!needs_grad(t))
    raise(PyExc_RuntimeError, "[retain_grad] the tensor requires no gradient (requires_grad=False)");
  Node* n = current_grad_fn(t);
  if (!n || t->retains_grad) return;
  node_extra(n)->retained.push_back({t->output, check(PyWeakref_NewRef(py(t), nullptr))});
  t->retains_grad = true;
}

void tape_init(PyObject* m) {
  NodeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&node_spec)));
  HookHandleType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&handle_spec)));
  SavedTensorType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&saved_spec)));
  add_type(m, "Node", NodeType);
  add_type(m, "RemovableHandle", HookHandleType);
  add_type(m, "SavedTensor", SavedTensorType);
}

}  // namespace core
