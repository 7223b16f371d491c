// AssemblyRecipe: an output put together from pieces, each a place in it and the operand (or number) that goes there.
// Takes a plan and a Call; gives the output.
// Invariant: pieces are written in order, so that the last write wins.
#include "convert.h"
#include "dtype.h"
#include "plan.h"

namespace core {

PyTypeObject* AssemblyRecipeType;

namespace {

AssemblyRecipeObject* self_of(PyObject* o) { return reinterpret_cast<AssemblyRecipeObject*>(o); }

// (shape, strides, dtype), ((operand or -1, number, shape, strides, offset), ...)
PyObject* recipe_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *shape, *strides, *dtype, *pieces;
  if (!PyArg_ParseTuple(args, "(OOO)O", &shape, &strides, &dtype, &pieces)) return nullptr;
  return guarded([&] {
    Own<AssemblyRecipeObject> r(self_of(check(type->tp_alloc(type, 0))));
    r->pieces = new std::vector<AssemblyPiece>;
    r->out = layout_read("AssemblyRecipe", shape, strides, dtype_from(dtype));
    int64_t low, high;
    rl::layout_extent(r->out, &low, &high);
    Ref list = checked(PySequence_Tuple(pieces));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.py()); i++) {
      AssemblyPiece piece = {};
      PyObject* number;
      long long offset;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list.py(), i), "iOOOL", &piece.operand, &number,
              &shape, &strides, &offset))
        throw PythonError();
      piece.place = layout_read("AssemblyRecipe", shape, strides, r->out->dtype);
      piece.offset = offset;
      piece.number = piece.operand < 0 ? Py_NewRef(number) : nullptr;
      r->pieces->push_back(piece);
      int64_t first, last;
      rl::layout_extent(piece.place, &first, &last);
      if (piece.place->numel && (first + offset < low || last + offset > high))
        raise(PyExc_ValueError, "[AssemblyRecipe] piece %zd lies outside of the output", i);
    }
    return r.release_object();
  });
}

void recipe_dealloc(PyObject* o) {
  AssemblyRecipeObject* r = self_of(o);
  PyTypeObject* type = Py_TYPE(o);
  if (r->out) rl::decref(r->out);
  for (AssemblyPiece& piece : *r->pieces) {
    rl::decref(piece.place);
    Py_XDECREF(piece.number);
  }
  delete r->pieces;
  type->tp_free(o);
  Py_DECREF(type);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot slots_[] = {
    {Py_tp_new, fn(recipe_new)}, {Py_tp_dealloc, fn(recipe_dealloc)}, {0, nullptr}};
PyType_Spec spec = {"rushlight._core.AssemblyRecipe", sizeof(AssemblyRecipeObject), 0,
    Py_TPFLAGS_DEFAULT, slots_};

}  // namespace

void assembly_build(Plan* p, const Call& call) {
  const AssemblyRecipeObject* r = p->assembly;
  for (const AssemblyPiece& piece : *r->pieces)
    if (piece.operand >= call.tensors.size() ||
        (piece.operand >= 0 && !broadcasts_to(call.tensors[piece.operand]->layout, piece.place)))
      raise(PyExc_RuntimeError, "[%s] a piece of the assembly does not fit", call.op->text);
  rl::incref(r->out);
  p->outs[0] = r->out;
  p->nouts = 1;
}

Ref assembly_execute(Plan* p, Call& call) {
  const AssemblyRecipeObject* r = p->assembly;
  rl::incref(r->out);
  Own<Tensor> out = tensor_empty(r->out);
  for (const AssemblyPiece& piece : *r->pieces) {
    if (!piece.place->numel) continue;
    rl::incref(out->storage);
    rl::incref(piece.place);
    Own<Tensor> place = tensor_make(out->storage, piece.place, out->offset + piece.offset);
    if (piece.operand < 0) fill_number(place.get(), piece.number);
    else copy_into(place.get(), call.tensors[piece.operand]);
  }
  return Ref(out.release_object());
}

void assembly_init(PyObject* m) {
  AssemblyRecipeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "AssemblyRecipe", AssemblyRecipeType);
}

}  // namespace core
