#include "Ticket_next.h"

#include <opsmith/kernel.h>

void Ticket_next(const opsmith::Context&, const class_samples::Ticket_next_args& a) {
  *a.out.data() = a.number;
  *a.new_number.data() = a.number + a.step;
}
OPSMITH_KERNEL(class_samples, Ticket_next, cpu)
