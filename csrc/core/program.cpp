// Programs. Takes instructions on registers; gives their outputs, without entering Python between
// operator calls.
// Invariant: see program.h; checked once, when the program is made.
#include "program.h"

#include "links.h"
#include "operator.h"
#include "plan.h"
#include "records.h"
#include "steps.h"
#include "tensor.h"

namespace core {

PyTypeObject* ProgramType;

namespace {

Program* self_of(PyObject* o) { return reinterpret_cast<Program*>(o); }

// ---- reading a program

class Reader {
 public:
  explicit Reader(Program* p) : p_(p), defined_(p->ninputs, true), last_(p->ninputs, -1) {}

  void instructions(PyObject* list) {
    Ref items = checked(PySequence_Tuple(list));
    Py_ssize_t n = PyTuple_GET_SIZE(items.py());
    p_->instructions->resize(n);
    for (now_ = 0; now_ < n; now_++)
      instruction((*p_->instructions)[now_], PyTuple_GET_ITEM(items.py(), now_));
  }

  void outputs(PyObject* o) {
    now_ = -2;  // read at the end: never freed by an instruction
    Ref items = checked(PySequence_Tuple(o));
    p_->single =
        PyTuple_GET_SIZE(items.py()) > 0 && PyUnicode_Check(PyTuple_GET_ITEM(items.py(), 0));
    Py_ssize_t n = p_->single ? 1 : PyTuple_GET_SIZE(items.py());
    p_->outputs->resize(n);
    for (Py_ssize_t i = 0; i < n; i++)
      argument((*p_->outputs)[i], p_->single ? items.py() : PyTuple_GET_ITEM(items.py(), i));
  }

  void finish() {
    p_->nregisters = static_cast<int>(defined_.size());
    for (size_t r = 0; r < last_.size(); r++)
      if (last_[r] >= 0) (*p_->instructions)[last_[r]].last.push_back(static_cast<int>(r));
  }

 private:
  int number(PyObject* o) {
    long v = PyLong_AsLong(o);
    if (v == -1 && PyErr_Occurred()) throw PythonError();
    return static_cast<int>(v);
  }

  void instruction(Instruction& in, PyObject* o) {
    PyObject *callee, *arguments, *outs;
    if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "OOO", &callee, &arguments, &outs))
      raise(PyExc_TypeError, "[Program] instruction %d is not (operator, arguments, outs)", now_);
    Ref resolved;
    if (PyUnicode_Check(callee)) resolved = host_function(callee);
    else resolved = Ref::borrow(callee);
    PyTypeObject* type = Py_TYPE(resolved.py());
    in.how = type == OperatorType                            ? Instruction::Operator
             : type == RecipeType || type == FusedKernelType ? Instruction::Kernel
                                                             : Instruction::Callable;
    Ref list = checked(PySequence_Tuple(arguments));
    Py_ssize_t n = PyTuple_GET_SIZE(list.py());
    if (in.how == Instruction::Operator) {
      const auto* op = reinterpret_cast<struct Operator*>(resolved.py());
      if (n > op->nparams + 1)  // one more: what the result is written to
        raise(PyExc_ValueError, "[Program] instruction %d gives %s %zd of %d arguments", now_,
            op->text, n, op->nparams);
    }
    in.arguments.resize(n);
    for (Py_ssize_t i = 0; i < n; i++) argument(in.arguments[i], PyTuple_GET_ITEM(list.py(), i));
    if (PyLong_Check(outs)) in.outs.push_back(number(outs));
    else {
      Ref numbers = checked(PySequence_Tuple(outs));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers.py()); i++)
        in.outs.push_back(number(PyTuple_GET_ITEM(numbers.py(), i)));
    }
    for (int r : in.outs) {
      if (r < 0) continue;
      if (r > 1 << 24) raise(PyExc_ValueError, "[Program] register %d", r);
      if (static_cast<size_t>(r) >= defined_.size()) {
        defined_.resize(r + 1, false);
        last_.resize(r + 1, -1);
      }
      if (defined_[r])
        raise(PyExc_ValueError, "[Program] instruction %d writes register %d again", now_, r);
      defined_[r] = true;
      last_[r] = now_;  // freed at once unless something reads it
    }
    in.callee = resolved.release();
    in.linkable = in.how == Instruction::Operator && link_possible(in);
  }

  Ref host_function(PyObject* name) {
    Ref library = checked(PyImport_ImportModule("operator"));
    PyObject* f = PyObject_GetAttr(library.py(), name);
    if (f) return Ref(f);
    PyErr_Clear();
    library = checked(PyImport_ImportModule("builtins"));
    f = PyObject_GetAttr(library.py(), name);
    if (f) return Ref(f);
    PyErr_Clear();
    library = checked(PyImport_ImportModule("math"));
    return checked(PyObject_GetAttr(library.py(), name));
  }

  void read(int r) {
    if (r < 0 || static_cast<size_t>(r) >= defined_.size() || !defined_[r])
      raise(PyExc_ValueError, "[Program] register %d is read before it is written", r);
    last_[r] = now_ == -2 ? -2 : last_[r] == -2 ? -2 : now_;
  }

  void argument(Argument& a, PyObject* o) {
    if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) < 2 || !PyUnicode_Check(PyTuple_GET_ITEM(o, 0)))
      raise(PyExc_TypeError,
          "[Program] an argument is ('r', i), ('i', i, k), ('l', entries) or ('c', object)");
    const char* tag = PyUnicode_AsUTF8(PyTuple_GET_ITEM(o, 0));
    PyObject* payload = PyTuple_GET_ITEM(o, 1);
    if (!std::strcmp(tag, "r")) {
      a.kind = Argument::Register;
      read(a.index = number(payload));
    } else if (!std::strcmp(tag, "i") && PyTuple_GET_SIZE(o) == 3) {
      a.kind = Argument::Item;
      read(a.index = number(payload));
      a.item = number(PyTuple_GET_ITEM(o, 2));
    } else if (!std::strcmp(tag, "l")) {
      a.kind = Argument::List;
      Ref list = checked(PySequence_Tuple(payload));
      a.entries.resize(PyTuple_GET_SIZE(list.py()));
      for (size_t i = 0; i < a.entries.size(); i++)
        argument(a.entries[i], PyTuple_GET_ITEM(list.py(), i));
    } else if (!std::strcmp(tag, "c")) {
      a.kind = Argument::Constant;
      a.object = Py_NewRef(payload);
    } else {
      raise(PyExc_ValueError, "[Program] no argument kind '%s'", tag);
    }
  }

  Program* p_;
  int now_ = 0;
  std::vector<bool> defined_;
  std::vector<int> last_;
};

// ---- running it

class Registers {
 public:
  Registers(PyObject** inputs, int n, int total) {
    values_.resize(total);
    for (int i = 0; i < total; i++) values_[i] = i < n ? inputs[i] : nullptr;
  }
  ~Registers() {
    for (int i = 0; i < values_.size(); i++) Py_XDECREF(values_[i]);
  }
  Registers(const Registers&) = delete;
  PyObject*& operator[](int i) { return values_[i]; }

  // A borrowed value; lists are made and kept in `made`.
  PyObject* get(const Argument& a, Small<PyObject*, 8>& made) {
    switch (a.kind) {
      case Argument::Register: return values_[a.index];
      case Argument::Constant: return a.object;
      case Argument::Item: {
        PyObject* o = check(PySequence_GetItem(values_[a.index], a.item));
        made.push(o);
        return o;
      }
      default: {
        Py_ssize_t n = static_cast<Py_ssize_t>(a.entries.size());
        PyObject* list = check(PyTuple_New(n));
        made.push(list);
        for (Py_ssize_t i = 0; i < n; i++)
          PyTuple_SET_ITEM(list, i, Py_NewRef(get(a.entries[i], made)));
        return list;
      }
    }
  }

 private:
  Small<PyObject*, 24> values_;
};

struct MadeLists {
  Small<PyObject*, 8> made;
  ~MadeLists() {
    for (int i = 0; i < made.size(); i++) Py_DECREF(made[i]);
  }
};

void store(Registers& registers, const Instruction& in, Ref value) {
  if (in.outs.empty()) return;  // called for what it writes
  if (in.outs.size() == 1) {
    if (in.outs[0] >= 0) registers[in.outs[0]] = value.release();
    return;
  }
  Py_ssize_t n = PySequence_Size(value.py());
  if (n < 0) throw PythonError();
  if (n != static_cast<Py_ssize_t>(in.outs.size()))
    raise(PyExc_ValueError, "[Program] a call returned %zd values, %zd are expected", n,
        static_cast<Py_ssize_t>(in.outs.size()));
  for (Py_ssize_t i = 0; i < n; i++)
    if (in.outs[i] >= 0) registers[in.outs[i]] = check(PySequence_GetItem(value.py(), i));
}

Ref recorded_kernel(PyObject* kernel, Small<PyObject*, 16>& arguments) {
  PyObject* name = reinterpret_cast<RecipeObject*>(kernel)->key;
  RecordScope record(name, "fused");
  record.inputs(arguments.data(), arguments.size());
  record.ran(PyUnicode_AsUTF8(name), true);
  Ref value = checked(recipe_vectorcall(kernel, arguments.data(), arguments.size(), nullptr));
  record.outputs(value.py());
  return value;
}

Ref operated(Instruction& in, Small<PyObject*, 16>& arguments) {
  const bool linkable = in.linkable && !(mode & (kRecords | kDispatch));
  Ref value;
  if (linkable && link_run(in, arguments.data(), &value)) return value;
  value = operator_apply(
      reinterpret_cast<Operator*>(in.callee), arguments.data(), arguments.size());
  if (linkable && in.repeated) link_learn(in, arguments.data(), value.py());
  in.repeated = true;
  return value;
}

void run(Program* p, Registers& registers, StepsLearner* learner = nullptr) {
  for (Instruction& in : *p->instructions) {
    Ref value;
    {
      MadeLists lists;
      Small<PyObject*, 16> arguments;
      for (const Argument& a : in.arguments) arguments.push(registers.get(a, lists.made));
      if (in.how == Instruction::Operator)
        value = operated(in, arguments);
      else if ((mode & kRecords) && Py_TYPE(in.callee) == FusedKernelType)
        value = recorded_kernel(in.callee, arguments);
      else if (in.how == Instruction::Kernel)
        value = checked(recipe_vectorcall(in.callee, arguments.data(), arguments.size(), nullptr));
      else
        value =
            checked(PyObject_Vectorcall(in.callee, arguments.data(), arguments.size(), nullptr));
      if (learner) learner->instruction(in, arguments.data(), value.py());
    }
    store(registers, in, std::move(value));
    for (int r : in.last) {
      Py_XDECREF(registers[r]);
      registers[r] = nullptr;
    }
  }
}

// ---- the Python type

PyObject* program_vectorcall(
    PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  return guarded([&]() -> PyObject* {
    Program* p = self_of(self);
    int n = static_cast<int>(PyVectorcall_NARGS(nargsf));
    if (names || n != p->ninputs)
      raise(PyExc_TypeError, "[Program] takes %d inputs, got %d", p->ninputs, n);
    Small<PyObject*, 24> inputs;
    for (int i = 0; i < n; i++) inputs.push(Py_NewRef(args[i]));
    if (!p->label || !(mode & kRecords)) return program_value(p, inputs.data(), n).release();
    RecordScope record(p->label, "graph");
    record.inputs(args, n);
    Ref value = program_value(p, inputs.data(), n);
    record.outputs(value.py());
    return value.release();
  });
}

PyObject* program_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "ninputs", "instructions", "outputs", "transparent", "names", "ranks", "settled", nullptr};
  int ninputs, transparent = 0, ranks = 0, settled = 0;
  PyObject *instructions, *outputs, *names = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOO|pOpp", const_cast<char**>(keywords),
          &ninputs, &instructions, &outputs, &transparent, &names, &ranks, &settled))
    return nullptr;
  return guarded([&] {
    Own<Program> p(self_of(check(type->tp_alloc(type, 0))));
    p->vectorcall = program_vectorcall;
    p->ninputs = ninputs;
    p->transparent = transparent;
    p->ranks = ranks;
    p->settled = settled;
    p->names = Py_NewRef(names);
    p->given = check(PyTuple_Pack(2, instructions, outputs));
    p->instructions = new std::vector<Instruction>;
    p->outputs = new std::vector<Argument>;
    Reader reader(p.get());
    reader.instructions(instructions);
    reader.outputs(outputs);
    reader.finish();
    return p.release_object();
  });
}

int visit_argument(const Argument& a, visitproc visit, void* arg) {
  Py_VISIT(a.object);
  for (const Argument& e : a.entries)
    if (int r = visit_argument(e, visit, arg)) return r;
  return 0;
}
int traverse(PyObject* o, visitproc visit, void* arg) {
  Program* p = self_of(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(p->names);
  Py_VISIT(p->given);
  Py_VISIT(p->label);
  if (p->instructions)
    for (const Instruction& in : *p->instructions) {
      Py_VISIT(in.callee);
      for (const Argument& a : in.arguments)
        if (int r = visit_argument(a, visit, arg)) return r;
    }
  if (p->outputs)
    for (const Argument& a : *p->outputs)
      if (int r = visit_argument(a, visit, arg)) return r;
  return 0;
}
void drop(Argument& a) {
  Py_CLEAR(a.object);
  for (Argument& e : a.entries) drop(e);
}
int clear(PyObject* o) {
  Program* p = self_of(o);
  Py_CLEAR(p->names);
  Py_CLEAR(p->given);
  // Instructions stay whole until the end: a program in a cycle may still be called by a finaliser.
  return 0;
}
void dealloc(PyObject* o) {
  Program* p = self_of(o);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  Py_CLEAR(p->names);
  Py_CLEAR(p->given);
  Py_CLEAR(p->label);
  if (p->instructions)
    for (Instruction& in : *p->instructions) {
      Py_CLEAR(in.callee);
      link_free(in.link);
      for (Argument& a : in.arguments) drop(a);
    }
  if (p->outputs)
    for (Argument& a : *p->outputs) drop(a);
  delete p->instructions;
  delete p->outputs;
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* get_names(PyObject* o, void*) {
  return Py_NewRef(self_of(o)->names ? self_of(o)->names : Py_None);
}
int put_names(PyObject* o, PyObject* value, void*) {
  Py_XSETREF(self_of(o)->names, Py_NewRef(value ? value : Py_None));
  return 0;
}
PyObject* get_label(PyObject* o, void*) {
  return Py_NewRef(self_of(o)->label ? self_of(o)->label : Py_None);
}
int put_label(PyObject* o, PyObject* value, void*) {
  if (value && !PyUnicode_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "[Program] a label is a str");
    return -1;
  }
  Py_XSETREF(self_of(o)->label, Py_XNewRef(value));
  return 0;
}
PyObject* get_given(PyObject* o, void* which) {
  return Py_NewRef(PyTuple_GET_ITEM(self_of(o)->given, which ? 1 : 0));
}
PyObject* get_ninputs(PyObject* o, void*) { return PyLong_FromLong(self_of(o)->ninputs); }
PyObject* get_transparent(PyObject* o, void*) { return PyBool_FromLong(self_of(o)->transparent); }

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyGetSetDef getset[] = {
    {"names", get_names, put_names, "provenance of each instruction: (depth, operator name)",
        nullptr},
    {"label", get_label, put_label, "what its calls are recorded as; none: only their parts are",
        nullptr},
    {"ninputs", get_ninputs, nullptr, nullptr, nullptr},
    {"transparent", get_transparent, nullptr, "the parts record themselves on the tape", nullptr},
    {"instructions", get_given, nullptr, "as given", nullptr},
    {"outputs", get_given, nullptr, "as given", reinterpret_cast<void*>(1)},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Program, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_new, fn(program_new)},
    {Py_tp_dealloc, fn(dealloc)},
    {Py_tp_traverse, fn(traverse)},
    {Py_tp_clear, fn(clear)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight._core.Program", sizeof(Program), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, type_slots};

}  // namespace

void program_run(Program* p, PyObject** inputs, int n, std::vector<Ref>& outputs) {
  Registers registers(inputs, n, p->nregisters);
  Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(p));
  run(p, registers);
  MadeLists lists;
  for (const Argument& a : *p->outputs)
    outputs.push_back(Ref::borrow(registers.get(a, lists.made)));
}

Ref program_value(Program* p, PyObject** inputs, int n, StepsLearner* learner) {
  Registers registers(inputs, n, p->nregisters);
  Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(p));
  run(p, registers, learner);
  MadeLists lists;
  if (p->single) return Ref::borrow(registers.get((*p->outputs)[0], lists.made));
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(p->outputs->size())));
  for (size_t i = 0; i < p->outputs->size(); i++)
    PyTuple_SET_ITEM(tuple.py(), i, Py_NewRef(registers.get((*p->outputs)[i], lists.made)));
  return tuple;
}

void program_init(PyObject* m) {
  ProgramType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "Program", ProgramType);
}

}  // namespace core
