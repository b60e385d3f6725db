import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Assigns tasks with Kafka's own assignor: reads a JSON array of groups from stdin, and writes an array with the
 * assignment of each.
 *
 * <p>A group: {"members": {ID: {"process": ID, "active": TASKS, "standby": TASKS}}, "topology": {SUBTOPOLOGY:
 * {"partitions": N, "stateful": BOOLEAN}}, "standby_replicas": N}. TASKS: {SUBTOPOLOGY: [PARTITION…]}.
 */
public final class TaskAssignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode group : JSON.readTree(System.in)) {
            answers.add(assign(group));
        }
        JSON.writeValue(System.out, answers);
    }

    private static ObjectNode assign(JsonNode group) {
        var members = new HashMap<String, AssignmentMemberSpec>();
        group.get("members").properties().forEach(entry -> members.put(entry.getKey(), member(entry.getValue())));
        var configs = Map.of("num.standby.replicas", group.get("standby_replicas").asText());
        var assigned = new StickyTaskAssignor()
                .assign(new GroupSpecImpl(members, configs), new Topology(group.get("topology")));
        ObjectNode answer = JSON.createObjectNode();
        assigned.members().forEach((id, tasks) -> answer.set(id, written(tasks)));
        return answer;
    }

    private static AssignmentMemberSpec member(JsonNode row) {
        return new AssignmentMemberSpec(
                Optional.empty(),
                Optional.empty(),
                tasks(row.get("active")),
                tasks(row.get("standby")),
                Map.of(),
                row.get("process").asText(),
                Map.of(),
                Map.of(),
                Map.of());
    }

    private static Map<String, Set<Integer>> tasks(JsonNode rows) {
        var tasks = new HashMap<String, Set<Integer>>();
        rows.properties().forEach(entry -> {
            var partitions = new HashSet<Integer>();
            entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
            tasks.put(entry.getKey(), partitions);
        });
        return tasks;
    }

    private static ObjectNode written(MemberAssignment tasks) {
        ObjectNode row = JSON.createObjectNode();
        row.set("active", written(tasks.activeTasks()));
        row.set("standby", written(tasks.standbyTasks()));
        return row;
    }

    private static ObjectNode written(Map<String, Set<Integer>> tasks) {
        ObjectNode rows = JSON.createObjectNode();
        tasks.forEach((subtopology, partitions) -> rows.set(subtopology, JSON.valueToTree(new TreeSet<>(partitions))));
        return rows;
    }

    private record Topology(JsonNode rows) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            var names = new ArrayList<String>();
            rows.fieldNames().forEachRemaining(names::add);
            return names;
        }

        @Override
        public int maxNumInputPartitions(String subtopology) throws NoSuchElementException {
            return rows.get(subtopology).get("partitions").asInt();
        }

        @Override
        public boolean isStateful(String subtopology) throws NoSuchElementException {
            return rows.get(subtopology).get("stateful").asBoolean();
        }
    }
}
