# SPDX-License-Identifier: Apache-2.0
# Mutants of the protocol: each is production's header with one text replaced, compiled into the explorer's
# test, which must refute every one. A text that the header no longer contains ends the configuration.
set(AGREEMENT_MUTANT_SOURCES)
set(protocol_header ${PROJECT_SOURCE_DIR}/src/core/agreement_protocol.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${protocol_header})
file(READ ${protocol_header} protocol_text)

# agreement_mutant(NAME FROM TO [FROM TO ...])
function(agreement_mutant name)
  set(text "${protocol_text}")
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE 1 ${last} 2)
    math(EXPR j "${i} + 1")
    set(from "${ARGV${i}}")
    string(FIND "${text}" "${from}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "mutant ${name}: agreement_protocol.h does not contain: ${from}")
    endif()
    string(REPLACE "${from}" "${ARGV${j}}" text "${text}")
  endforeach()
  string(REPLACE "tugline::core::agreement {" "tugline::core::mutant_${name} {" text "${text}")
  string(REPLACE "#pragma once" "" text "${text}")
  set(file ${CMAKE_CURRENT_BINARY_DIR}/agreement_mutants/${name}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "@text@
#define TUGLINE_PROTOCOL tugline::core::mutant_${name}
#define TUGLINE_ADAPTER Mutant_${name}
#include \"agreement_model/adapter.inc\"

namespace tugline::core::model {
namespace {
const bool registered = (mutants().push_back({\"${name}\", std::make_unique<Mutant_${name}>()}), true);
}
}  // namespace tugline::core::model
" @ONLY)
  list(APPEND AGREEMENT_MUTANT_SOURCES ${file})
  set(AGREEMENT_MUTANT_SOURCES ${AGREEMENT_MUTANT_SOURCES} PARENT_SCOPE)
endfunction()

agreement_mutant(propose_before_all_posted
  "if (posted_agreement(word) < self.current) return Look::wait;" "")
agreement_mutant(forget_to_start_the_count_again "self.seen = 0;" "")
agreement_mutant(forget_to_clear_former_failures "self.any_failed = false;" "")
agreement_mutant(commit_over_a_failure
  "if (posted_failed(word)) self.any_failed = true;" "")
agreement_mutant(commit_over_a_survivor_s_failure
  "|| posted_failed(word)) result" ") result")
agreement_mutant(commit_for_a_survivor_that_has_not_posted
  "if (posted_agreement(word) < self.current || posted_failed(word)) result"
  "if (posted_failed(word)) result")
agreement_mutant(ignore_the_window
  "if (posted_agreement(word) + self.records <= self.current) return Look::wait;" "")
agreement_mutant(window_one_too_long
  "posted_agreement(word) + self.records <= self.current" "posted_agreement(word) + self.records < self.current")
agreement_mutant(take_an_old_record_for_this_one
  "if (decode(word).agreement >= self.current) return obey(board, self, word, access);"
  "if (decode(word).verdict != Verdict::undecided) return obey(board, self, word, access);"
  "if (record.agreement != self.current) return obey_removal(self);" "")
agreement_mutant(take_a_later_record_for_this_one
  "if (record.agreement != self.current) return obey_removal(self);" "")
agreement_mutant(overwrite_without_a_swap
  "if (access.swap(decided, word, proposal)) word = proposal;"
  "access.store(decided, proposal); word = proposal;")
agreement_mutant(obey_oneself_after_losing_the_swap
  "if (access.swap(decided, word, proposal)) word = proposal;"
  "access.swap(decided, word, proposal); word = proposal;")
agreement_mutant(stale_proposer_accepted
  "const auto proposal = encode" "word = access.load(decided); const auto proposal = encode")
agreement_mutant(swap_before_the_proposal_is_written
  "if (changed) write_proposal(board.proposals[self.rank][slot], self, lost, access);" ""
  "if (access.swap(decided, word, proposal)) word = proposal;"
  "if (access.swap(decided, word, proposal)) word = proposal;
  if (changed) write_proposal(board.proposals[self.rank][slot], self, lost, access);")
agreement_mutant(one_area_for_all_records
  "write_proposal(board.proposals[self.rank][slot]" "write_proposal(board.proposals[self.rank][0]"
  "board.proposals[record.proposer][record.agreement & (self.records - 1)]"
  "board.proposals[record.proposer][0]")
agreement_mutant(read_the_area_without_its_number
  "return access.load(area.agreement) == self.current;" "return true;")
agreement_mutant(check_the_number_before_reading
  "decision.epoch = access.load(area.epoch);"
  "if (access.load(area.agreement) != self.current) return false;
  decision.epoch = access.load(area.epoch);"
  "return access.load(area.agreement) == self.current;" "return true;")
agreement_mutant(number_the_area_last
  "  access.store(area.agreement, self.current);
  access.store(area.epoch" "  access.store(area.epoch"
  "access.store(area.lost[i], lost.words[i]);"
  "access.store(area.lost[i], lost.words[i]);
  access.store(area.agreement, self.current);")
agreement_mutant(forget_former_losses
  "const RankSet lost = self.last.lost | gone;" "const RankSet lost = gone;")
agreement_mutant(keep_the_epoch_when_somebody_is_lost "self.last.epoch + 1" "self.last.epoch")
agreement_mutant(propose_a_loss_that_is_none
  "const bool changed = lost != self.last.lost;" "const bool changed = !gone.empty();")
agreement_mutant(removed_member_goes_on
  "if (decision.lost.has(self.rank)) return obey_removal(self);" "")
agreement_mutant(wait_for_the_dead
  "const auto look = changed || patience" "const auto look = patience")
